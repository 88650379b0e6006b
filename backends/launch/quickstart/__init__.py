"""Quick starts: derive a complete run_config from one URL."""
