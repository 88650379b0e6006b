"""Transport to remote MCP servers over HTTP, in either era."""
