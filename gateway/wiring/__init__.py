"""The pieces of the composition root: each turns some settings into one part of the house, and nothing else does."""
