"""What the tools do, by what they work on. Functions that are not asynchronous only work on files."""
