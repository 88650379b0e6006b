"""Phrases that several messages share."""

import difflib
from collections.abc import Iterable

from gateway.settings.values import Where


def dotted(at: Where) -> str:
    return ".".join(map(str, at)) or "settings"


def nearest(word: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown word."""
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f"; did you mean {near[0]}?" if near else f"; known: {', '.join(known) or 'none'}"
