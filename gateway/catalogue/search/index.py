"""The search index of a view: its tools, prompts and resources as documents, ranked by words and by meaning."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal, cast

from gateway.catalogue.flatten import as_dict
from gateway.catalogue.search.meaning import MeaningRanker
from gateway.catalogue.search.ranking import SearchText, TextIndex
from gateway.contract import Json, Route

SearchKind = Literal["tool", "prompt", "resource"]
_FUSION: Final = 10.0
"""Constant of reciprocal rank fusion: how fast the weight of a rank falls."""
_MEANING_CHARS: Final = 600


@dataclass(frozen=True, slots=True)
class Hit:
    """An item that can be found: its kind, its route and the definition that lists show."""

    kind: SearchKind
    route: Route
    definition: Json


class SearchIndex:
    """Finds the items of one view. Built on the first search."""

    def __init__(self, hits: Sequence[Hit]) -> None:
        self.hits = hits

    @cached_property
    def _documents(self) -> list[SearchText]:
        return [to_document(hit.route.namespace, hit.definition) for hit in self.hits]

    @cached_property
    def _words(self) -> TextIndex:
        return TextIndex(self._documents)

    @cached_property
    def texts(self) -> list[str]:
        return [_meaning_text(hit.route.namespace, hit.definition) for hit in self.hits]

    async def search(
        self, query: str, limit: int, kinds: frozenset[SearchKind], namespace: str | None, ranker: MeaningRanker | None
    ) -> list[Hit]:
        """The items that fit the query best, best first."""
        wide = len(self.hits)
        ranks = [self._words.search(query, wide)]
        if ranker is not None:
            ranks.append(await ranker.search(query, self.texts, wide))
        found = (self.hits[number] for number in fuse(ranks))
        fitting = (hit for hit in found if hit.kind in kinds and namespace in (None, hit.route.namespace))
        return [hit for hit, _ in zip(fitting, range(limit), strict=False)]


def fuse(rankings: Sequence[Sequence[int]]) -> list[int]:
    """Combine rankings by the reciprocals of the ranks."""
    present = [ranking for ranking in rankings if ranking]
    if len(present) < 2:
        return list(present[0]) if present else []
    scores: dict[int, float] = {}
    for ranking in present:
        for rank, number in enumerate(ranking):
            scores[number] = scores.get(number, 0.0) + 1.0 / (_FUSION + rank)
    return sorted(scores, key=lambda number: (-scores[number], number))


def to_document(namespace: str, definition: Json) -> SearchText:
    """The searchable texts of a tool, prompt or resource."""
    name = str(definition.get("name") or "")
    parameters = list(_parameters(definition))
    return SearchText(
        (
            (3.0, name),
            (2.0, namespace),
            (2.0, str(definition.get("title") or "")),
            (1.0, str(definition.get("description") or "")),
            (1.0, str(definition.get("uri") or definition.get("uriTemplate") or "")),
            (0.5, " ".join(name for name, _ in parameters)),
            (0.25, " ".join(text for _, text in parameters)),
        )
    )


def _parameters(definition: Json) -> Iterator[tuple[str, str]]:
    """Name and description of each parameter of a tool or prompt, with the values of enumerations."""
    for name, schema in as_dict(as_dict(definition.get("inputSchema")).get("properties")).items():
        rules = as_dict(schema)
        values = cast("list[Any]", rules.get("enum") if isinstance(rules.get("enum"), list) else [])
        yield name, " ".join([str(rules.get("description") or ""), *(str(value) for value in values[:50])])
    arguments = definition.get("arguments")
    for argument in cast("list[Any]", arguments if isinstance(arguments, list) else []):
        yield str(as_dict(argument).get("name") or ""), str(as_dict(argument).get("description") or "")


def _meaning_text(namespace: str, definition: Json) -> str:
    name = str(definition.get("name") or "").replace("_", " ")
    title, description = str(definition.get("title") or ""), str(definition.get("description") or "")
    return f"{namespace}: {name}. {title} {description}"[:_MEANING_CHARS]
