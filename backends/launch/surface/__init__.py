"""Reads the public surface of a product from its sources, one module per language. No source is executed."""
