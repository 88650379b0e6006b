"""Normalizes texts for comparison: keys for names, digests for contents, words for searches."""

import hashlib
import re
import unicodedata
from typing import Final

_WORD: Final = re.compile(r"[^\W_]+")
_MAX_WORDS: Final = 32


def fold(text: str) -> str:
    """Return the key of a name. Names that differ only in case, width or white space have the same key."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def normalize(text: str) -> str:
    """Return the text without differences in width and white space; case stays."""
    return " ".join(unicodedata.normalize("NFKC", text).split())


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def words(text: str) -> list[str]:
    """Return the first distinct words of a search, without case and accents, as the index stores them."""
    plain = unicodedata.normalize("NFKD", text.lower())
    found = _WORD.findall("".join(letter for letter in plain if not unicodedata.combining(letter)))
    return list(dict.fromkeys(found))[:_MAX_WORDS]
