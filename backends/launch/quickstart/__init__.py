"""Quick starts: from one URL to a whole run_config."""
