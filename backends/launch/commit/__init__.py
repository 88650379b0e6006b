"""The commit service: an HTTP client for an external service, and an embedded service that uses local git."""
