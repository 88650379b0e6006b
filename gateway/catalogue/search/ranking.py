"""Full-text ranking of the items of a view: BM25 over weighted fields.

SQLite's FTS5 would rank as well, but an index belongs to one view: it is built from what its callers may see, is never
changed, and is released with the view. A connection per view would cost a thread's ownership and more memory, and FTS5
does not split `createPullRequest` or `create_pull_request` into words. docs/tool-lists.md compares the two.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

_K: Final = 1.2
_B: Final = 0.6
_SYNONYM_WEIGHT: Final = 0.35
MAX_QUERY_WORDS: Final = 64
MAX_DOCUMENT_CHARS: Final = 20_000

_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[^\W\d_A-Z]+|\d+")
_STOP_WORDS: Final = """
a an and are as at be but by can could do does for from have how i if in into is it its me my need of on or our out
please should so some that the their them then there these this to tool use used using want was we what when where
which will with would you your
"""
_STOP: Final = frozenset(_STOP_WORDS.split())
_SYNONYMS: Final = (
    ("create", "add", "new", "make", "insert", "open", "register", "start"),
    ("delete", "remove", "drop", "erase", "discard"),
    ("list", "show", "all", "enumerate", "available"),
    ("get", "read", "fetch", "view", "retrieve", "load", "look"),
    ("update", "edit", "change", "modify", "set", "replace", "rename", "alter"),
    ("search", "find", "query", "lookup", "grep", "match"),
    ("send", "post", "publish", "notify", "message"),
    ("run", "execute", "start", "launch", "invoke", "perform"),
    ("stop", "cancel", "abort", "end", "kill", "terminate"),
    ("folder", "directory", "dir"),
    ("picture", "image", "screenshot", "photo"),
    ("page", "website", "site", "url", "web"),
    ("remember", "store", "save", "memory", "keep", "note"),
    ("combine", "merge", "join"),
    ("copy", "duplicate", "clone"),
    ("weather", "forecast"),
    ("time", "date", "clock", "timezone"),
    ("diff", "compare", "difference"),
    ("error", "log", "console", "debug"),
)


@dataclass(frozen=True, slots=True)
class SearchText:
    """The texts of one item, by field, with the weight of each field."""

    fields: tuple[tuple[float, str], ...]

    @property
    def text(self) -> str:
        return "\n".join(text for _, text in self.fields if text)


class TextIndex:
    """An immutable index. The time of a search grows with the items that share a term with the query."""

    def __init__(self, documents: Sequence[SearchText]) -> None:
        self._postings: dict[str, list[tuple[int, float]]] = {}
        lengths: list[float] = []
        for number, document in enumerate(documents):
            weights: Counter[str] = Counter()
            for weight, text in document.fields:
                for word in words_of(text):
                    weights[word] += weight  # type: ignore[assignment]
            lengths.append(sum(weights.values()))
            for word, weight in weights.items():
                self._postings.setdefault(word, []).append((number, weight))
        mean = sum(lengths) / len(lengths) if lengths else 1.0
        self._norms = [_K * (1 - _B + _B * length / (mean or 1.0)) for length in lengths]
        self._count = len(documents)

    def search(self, query: str, limit: int) -> list[int]:
        """The numbers of the best items, best first. Equal items stay in the order of the list."""
        scores: dict[int, float] = {}
        for word, weight in _expand(query).items():
            postings = self._postings.get(word, ())
            rarity = math.log(1 + (self._count - len(postings) + 0.5) / (len(postings) + 0.5)) * weight
            for number, frequency in postings:
                share = frequency * (_K + 1) / (frequency + self._norms[number])
                scores[number] = scores.get(number, 0.0) + rarity * share
        return sorted(scores, key=lambda number: (-scores[number], number))[:limit]


def words_of(text: str) -> Iterator[str]:
    """The stems of a text's words. Identifiers are split at case changes, digits and punctuation."""
    for match in _WORDS.finditer(text[:MAX_DOCUMENT_CHARS]):
        word = match[0].lower()
        if word not in _STOP:
            yield stem(word)


def stem(word: str) -> str:
    """Remove the endings of plurals and verb forms, as far as that is safe without a dictionary."""
    for ending, shortest, replacement in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= shortest:
            word = word[: -len(ending)] + replacement
            break
    if len(word) > 3 and word[-1] == word[-2] and word[-1] in "bdgmnprt":
        word = word[:-1]
    return word[:-1] if word.endswith("e") and len(word) > 3 else word


_ENDINGS: Final = (
    ("ies", 2, "y"),
    ("sses", 2, "ss"),
    ("ations", 3, "at"),
    ("ation", 3, "at"),
    ("ings", 3, ""),
    ("ing", 3, ""),
    ("ed", 3, ""),
    ("ers", 3, ""),
    ("er", 4, ""),
    ("es", 3, "e"),
    ("ss", 1, "ss"),
    ("us", 2, "us"),
    ("s", 3, ""),
)
_GROUPS: Final[Mapping[str, frozenset[str]]] = {
    stem(word): frozenset(stem(other) for group in _SYNONYMS if word in group for other in group)
    for each in _SYNONYMS
    for word in each
}


def _expand(query: str) -> dict[str, float]:
    """The words of a query with their weights; words of like meaning count less."""
    words = list(words_of(query))[:MAX_QUERY_WORDS]
    weights = dict.fromkeys(words, 1.0)
    for word in words:
        for other in _GROUPS.get(word, ()):
            weights.setdefault(other, _SYNONYM_WEIGHT)
    return weights
