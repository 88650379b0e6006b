"""Texts as they are compared: names by their folded form, searches by their words."""

import hashlib
import re
import unicodedata
from typing import Final

_WORD: Final = re.compile(r"[^\W_]+")
_MAX_WORDS: Final = 32


def fold(text: str) -> str:
    """The same for names that differ only in case, width or white space."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def words(text: str) -> list[str]:
    """The different words of a search, without case and accents, as the index has them; the first ones only."""
    plain = unicodedata.normalize("NFKD", text.lower())
    found = _WORD.findall("".join(letter for letter in plain if not unicodedata.combining(letter)))
    return list(dict.fromkeys(found))[:_MAX_WORDS]
