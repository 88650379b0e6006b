"""What the pages are made of: where the facts come from, and who looks at which tenant."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from gateway.console.html import Html
from gateway.contract import Caller, Json, Route
from gateway.state.call_history import CallHistory

Query = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSources:
    """Where a caller is asked for, None means everything, whoever may see it."""

    calls: CallHistory
    store: Path
    """The file of the last spans and log records."""
    reach: Callable[[Caller], str | None]
    """The tenant that an operator may look at; None for all of them."""
    under_way: Callable[[str | None], list[Json]]
    backends: Callable[[Caller | None], Awaitable[list[Json]]]
    tools: Callable[[Caller | None], Mapping[str, Route]]
    """By any name; the values know their canonical id."""
    why: Callable[[Caller, str, Json, bool, bool], Json]
    tenants: Callable[[], Sequence[str]]
    endpoints: Callable[[], Sequence[str]]
    public_url: str
    trace_url: str | None
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleQueries:
    """One request of one operator."""

    sources: ConsoleSources
    operator: Caller
    tenant: str | None
    """Whose calls are shown; None for every tenant's."""
    everywhere: bool
    """Whether the operator may look at every tenant."""
    prefix: str
    """The path of the console."""
    signed_in: bool
    query: Query

    @property
    def caller(self) -> Caller | None:
        """Whose view of the catalogue is shown."""
        if self.tenant is None:
            return None
        if self.tenant == self.operator.tenant:
            return self.operator
        return Caller(self.tenant, self.operator.subject, scopes=self.operator.scopes)

    def to(self, *path: str, **query: Any) -> str:
        """An address within the console. The tenant that was chosen stays chosen."""
        if self.everywhere and self.tenant is not None:
            query = {"tenant": self.tenant, **query}
        said = urlencode({key: value for key, value in query.items() if value not in ("", None)})
        where = "/".join((self.prefix, *(quote(each, safe="") for each in path)))
        return f"{where}?{said}" if said else where

    def number(self, name: str, default: float, least: float, most: float) -> float:
        try:
            given = float(self.query.get(name) or default)
        except ValueError:
            return default
        return min(max(given, least), most) if given == given else default


@dataclass(frozen=True, slots=True)
class ConsolePage:
    title: str
    body: Html
    here: str = ""
    """Which of the links at the top leads here."""
    live: bool = False
    """Whether its parts are read again every few seconds."""
