"""The workers of a run, one module each with a function `run(context)`. They run in a child process."""
