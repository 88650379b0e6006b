"""`gatehouse stdio`: a stdio MCP server that forwards to a gateway, for clients that support only stdio."""
