"""The operator console: read-only pages, rendered on the server, without external assets."""
