"""The gates that a launch must pass, in the order in which they run."""
