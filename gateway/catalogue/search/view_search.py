"""The search view of one `View`: its index, its three tools, and the estimate that decides whether `auto` uses it."""

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Final

import msgspec

from gateway.catalogue.search.index import Hit, SearchIndex
from gateway.catalogue.search.tools import search_tool_definitions
from gateway.contract import Json

BYTES_PER_TOKEN: Final = 4
"""Estimate for tool definitions as JSON."""


class ViewSearch:
    """What a view lists, prepared for search. Everything is computed on first use."""

    def __init__(self, hits: Sequence[Hit], namespaces: Iterable[str]) -> None:
        self.index = SearchIndex(hits)
        self.tools = {hit.route.canonical: hit for hit in hits if hit.kind == "tool"}
        """The listed tools, by canonical id."""
        self._namespaces = tuple(namespaces)

    @cached_property
    def definitions(self) -> list[Json]:
        """The tools that the list contains instead."""
        counts = dict.fromkeys(self._namespaces, 0)
        for hit in self.tools.values():
            counts[hit.route.namespace] += 1
        return search_tool_definitions(counts)

    @cached_property
    def tools_tokens(self) -> int:
        """Estimate of the tokens that the whole list of tools takes in a model's context."""
        return len(msgspec.json.encode([hit.definition for hit in self.tools.values()])) // BYTES_PER_TOKEN
