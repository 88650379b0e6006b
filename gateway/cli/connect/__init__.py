"""`gatehouse connect`: what an MCP client must be told of a gateway, printed or written into its own file."""
