"""The commit service: an HTTP client for one elsewhere, and an embedded one that needs nothing but git."""
