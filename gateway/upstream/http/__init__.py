"""Remote MCP servers over HTTP, in either era."""
