"""The work of a run, done in a child process: one module per worker, each a function of a `Bench`."""
