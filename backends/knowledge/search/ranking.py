"""Ranking: combines lexical, semantic and graph scores, each from 0 to 1, into one weighted score, or their ranks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from backends.knowledge.search.index import Hit
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


_RANK_CONSTANT: Final = 10
"""Smaller values favour the first places. On the labelled set of the benchmark, 10 gave a better recall than 60."""
_NEIGHBOUR_BONUS: Final = 0.01


def fuse(lexical: Sequence[Hit], semantic: Sequence[Hit], neighbours: set[int]) -> list[Ranked]:
    """Rank all hits by weighted reciprocal rank fusion, best first; ties are in order of creation.

    The scores of words and of vectors are not comparable; their ranks are. The best rank counts as 1, and `total` is
    the weighted sum. Neighbours in the graph come after the hits.
    """
    words, similarities = _scores(lexical), _scores(semantic)
    by_words, by_meaning = _reciprocal_ranks(lexical), _reciprocal_ranks(semantic)
    ranked: list[Ranked] = []
    for number in {*words, *similarities, *neighbours}:
        total = WITH_SEMANTIC.lexical * by_words.get(number, 0.0) + WITH_SEMANTIC.semantic * by_meaning.get(number, 0.0)
        graph = NEIGHBOUR if number in neighbours else 0.0
        if graph:
            total += _NEIGHBOUR_BONUS if total else WITH_SEMANTIC.graph * NEIGHBOUR * _LAST_RANK
        ranked.append(
            Ranked(number, words.get(number, 0.0), similarities.get(number, 0.0), graph, round(min(total, 1.0), 6))
        )
    return sorted(ranked, key=lambda each: (-each.total, each.number))


_LAST_RANK: Final = 0.2


def _reciprocal_ranks(hits: Sequence[Hit]) -> dict[int, float]:
    return {hit.number: (_RANK_CONSTANT + 1) / (_RANK_CONSTANT + place) for place, hit in enumerate(hits, 1)}


def _scores(hits: Sequence[Hit]) -> dict[int, float]:
    return {hit.number: hit.score for hit in hits}


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
