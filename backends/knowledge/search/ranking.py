"""Ranking: combines lexical, semantic and graph scores, each from 0 to 1, into one weighted score."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from gateway.contract import Json

NEIGHBOUR: Final = 0.5
"""The graph score of an entry one triple away from a hit."""


@dataclass(frozen=True, slots=True)
class Weights:
    lexical: float
    semantic: float
    graph: float


WITH_SEMANTIC: Final = Weights(0.3, 0.5, 0.2)
# Without semantic search, its weight is split 60/40 between lexical and graph.
WITHOUT_SEMANTIC: Final = Weights(0.6, 0.0, 0.4)


class Ranked(NamedTuple):
    number: int
    lexical: float
    semantic: float
    graph: float
    total: float

    def scores(self) -> Json:
        return {
            "score_lexical": self.lexical,
            "score_semantic": self.semantic,
            "score_graph": self.graph,
            "score_total": self.total,
            "graph_hops": 0 if self.lexical or self.semantic else 1,
        }


def rank(
    lexical: Mapping[int, float], semantic: Mapping[int, float], neighbours: set[int], weights: Weights
) -> list[Ranked]:
    """Rank all hits, best first; ties are in order of creation."""
    ranked: list[Ranked] = []
    for number in {*lexical, *semantic, *neighbours}:
        words, similarity = lexical.get(number, 0.0), semantic.get(number, 0.0)
        graph = NEIGHBOUR if number in neighbours else 0.0
        total = weights.lexical * words + weights.semantic * similarity + weights.graph * graph
        ranked.append(Ranked(number, words, similarity, graph, round(total, 6)))
    return sorted(ranked, key=lambda each: (-each.total, each.number))
