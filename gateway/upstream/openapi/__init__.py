"""HTTP APIs described by an OpenAPI document: each operation is served as a tool."""
