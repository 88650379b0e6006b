"""Stems of words, so that a search finds the other forms of a word: "deploy" finds "deployed"."""

from functools import lru_cache
from typing import Any, Final

import snowballstemmer  # pyright: ignore[reportMissingTypeStubs]

_snowball: Final[Any] = snowballstemmer
LANGUAGES: Final[frozenset[str]] = frozenset(_snowball.algorithms())
_MIN_STEM: Final = 3
"""Shorter stems are the beginning of too many other words."""


@lru_cache(maxsize=4_096)
def stem(word: str, language: str) -> str:
    return _stemmer(language).stemWord(word)


@lru_cache
def _stemmer(language: str) -> Any:
    return _snowball.stemmer(language)


def stems(word: str, languages: tuple[str, ...]) -> dict[str, str]:
    """Return the stem of the word by language; none for a word that is too short or a number."""
    if word.isdigit():
        return {}
    found = {language: stem(word, language) for language in languages}
    return {language: each for language, each in found.items() if len(each) >= _MIN_STEM}


def common_prefix(stem_: str) -> str:
    """Return what the forms of a word begin with: a stem may end in a letter that only some forms have, as `polici`."""
    return stem_[:-1] if len(stem_) > _MIN_STEM and stem_[-1] in "aeiouy" else stem_


def is_form(term: str, stems_: dict[str, str]) -> bool:
    """Whether the term has one of the stems in its language."""
    return any(stem(term, language) == each for language, each in stems_.items())
