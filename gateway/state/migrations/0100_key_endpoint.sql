-- The MCP endpoint that a key is valid for; /mcp covers all endpoints.
ALTER TABLE api_keys ADD COLUMN endpoint TEXT NOT NULL DEFAULT '/mcp';
