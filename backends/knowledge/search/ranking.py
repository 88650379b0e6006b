"""How well an entry fits: words, meaning and the graph, each from 0 to 1, weighed into one score."""

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


WITH_MEANING: Final = Weights(0.3, 0.5, 0.2)
# Without embeddings their weight goes to the others, 60 to 40.
WITHOUT_MEANING: Final = Weights(0.6, 0.0, 0.4)


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
    """Everything found by any way, the best first; equals in order of creation."""
    ranked: list[Ranked] = []
    for number in {*lexical, *semantic, *neighbours}:
        words, meaning = lexical.get(number, 0.0), semantic.get(number, 0.0)
        graph = NEIGHBOUR if number in neighbours else 0.0
        total = weights.lexical * words + weights.semantic * meaning + weights.graph * graph
        ranked.append(Ranked(number, words, meaning, graph, round(total, 6)))
    return sorted(ranked, key=lambda each: (-each.total, each.number))
