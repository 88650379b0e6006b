"""Semantic search: vectors of entries, computed and compared locally. numpy and the model load on first use."""
