"""Search over entries and triples: one index interface with an implementation per database engine, and ranking."""
