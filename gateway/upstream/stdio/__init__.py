"""Transport to MCP servers that run as child processes, in either era."""
