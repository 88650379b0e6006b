"""Decides whether a sentence of a model says nothing beyond the facts that it cites."""

import re
from collections.abc import Sequence
from typing import Final

_STRICT: Final = frozenset({
    "all", "any", "always", "never", "every", "only", "no", "not", "none", "without", "cannot", "best", "fastest",
    "first", "most", "more", "less", "least", "full", "fully", "complete", "completely", "free", "secure",
    "guarantees", "guaranteed", "unlimited", "leading", "popular", "official", "production", "enterprise", "thread",
    "async", "cloud", "zero", "faster",
})  # fmt: skip
"""Words that change what a statement claims: they must stand in the facts themselves."""
_FUNCTION: Final = frozenset({
    "a", "an", "the", "and", "or", "of", "to", "in", "on", "for", "with", "by", "from", "as", "at", "is", "are", "be",
    "it", "its", "this", "that", "these", "those", "which", "you", "your", "can", "also", "such", "into", "while",
    "both", "has", "have", "will", "then", "so", "than", "their", "they", "there", "when", "where", "each", "one",
    "using", "use", "via", "including", "includes", "offers", "provides", "lets", "allows", "supports", "product",
    "library", "package",
})  # fmt: skip
_MIN_SHARE: Final = 0.7


def is_grounded(sentence: str, facts: Sequence[str], product: str) -> bool:
    """Whether the facts contain the sentence's names, numbers and code, and nearly all of its other words."""
    known = _words(" ".join([*facts, product]))
    code = {span.lower() for span in re.findall(r"`([^`]+)`", sentence)}
    text = " ".join(facts).lower()
    if any(span not in text for span in code):
        return False
    words = re.findall(r"[A-Za-z0-9][\w.+#-]*", re.sub(r"`[^`]*`", " ", sentence))
    for position, word in enumerate(words):
        is_name = (
            any(each.isdigit() for each in word) or word[1:] != word[1:].lower() or (word[0].isupper() and position > 0)
        )
        if (is_name or word.lower() in _STRICT) and _stem(word) not in known:
            return False
    content = [_stem(word) for word in words if word.lower() not in _FUNCTION]
    return not content or sum(word in known for word in content) / len(content) >= _MIN_SHARE


def _words(text: str) -> set[str]:
    return {_stem(word) for word in re.findall(r"[A-Za-z0-9][\w.+#-]*", text)}


def _stem(word: str) -> str:
    """Return the word without case and common endings, so that `reads` and `reading` agree."""
    word = word.lower().strip(".-")
    for ending in ("ing", "es", "ed", "s", "e"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word.removesuffix(ending)
    return word
