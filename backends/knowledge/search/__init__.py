"""Finding entries and triples: the index of each engine behind one interface, and the ranking above it."""
