"""From the files of MCP clients to entries of `backends:`."""
