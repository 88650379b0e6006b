"""Tool handlers, grouped by subject. Synchronous handlers only access files and run in a thread."""
