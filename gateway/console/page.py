"""The types that console pages are built from: data sources, the operator's request, and the page itself."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from gateway.approvals.review import ApprovalReview
from gateway.console.html import Html
from gateway.contract import Caller, Json, Route
from gateway.contract.caller import ADMIN
from gateway.state.call_history import CallHistory

Query = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSources:
    """Data sources of the pages. Where a source takes a caller, None returns the items of all tenants."""

    calls: CallHistory
    trace_store: Path
    """File with the most recent spans and log records."""
    visible_tenant: Callable[[Caller], str | None]
    """The tenant that an operator may see; None for all tenants."""
    calls_in_progress: Callable[[str | None], list[Json]]
    backends: Callable[[Caller | None], Awaitable[list[Json]]]
    tools: Callable[[Caller | None], Mapping[str, Route]]
    """By exposed name; a tool may have several. `Route.canonical` is its id."""
    check_policy: Callable[[Caller, str, Json, bool, bool], Json]
    tenants: Callable[[], Sequence[str]]
    endpoints: Callable[[], Sequence[str]]
    public_url: str
    trace_url: str | None
    version: str
    approvals: ApprovalReview
    is_approver: Callable[[Caller], bool]
    """Whether some policy lets a group of the user approve calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRequest:
    """A page request of one operator."""

    sources: ConsoleSources
    operator: Caller
    tenant: str | None
    """The tenant whose data is shown; None for all tenants."""
    all_tenants: bool
    prefix: str
    """URL path of the console."""
    signed_in: bool
    query: Query
    form_token: str = ""
    """Protects forms that change something: only pages of this session contain it."""

    @property
    def is_operator(self) -> bool:
        """Whether the user may see all pages; an approver sees the approvals only."""
        return ADMIN in self.operator.scopes

    @property
    def caller(self) -> Caller | None:
        """The caller whose view of the catalogue is shown; None for all tenants."""
        if self.tenant is None:
            return None
        if self.tenant == self.operator.tenant:
            return self.operator
        return Caller(self.tenant, self.operator.subject, scopes=self.operator.scopes)

    def tools(self) -> dict[str, Route]:
        """The visible tools by canonical id, sorted."""
        found = {route.canonical: route for route in self.sources.tools(self.caller).values()}
        return dict(sorted(found.items()))

    def url(self, *path: str, **query: Any) -> str:
        """A URL within the console. It keeps the selected tenant."""
        if self.all_tenants and self.tenant is not None:
            query = {"tenant": self.tenant, **query}
        encoded = urlencode({key: value for key, value in query.items() if value not in ("", None)})
        url = "/".join((self.prefix, *(quote(each, safe="") for each in path)))
        return f"{url}?{encoded}" if encoded else url

    def number(self, name: str, default: float, minimum: float, maximum: float) -> float:
        """A query parameter as a number within bounds; the default if it is not a number."""
        try:
            value = float(self.query.get(name) or default)
        except ValueError:
            return default
        return min(max(value, minimum), maximum) if value == value else default


@dataclass(frozen=True, slots=True)
class ConsolePage:
    title: str
    body: Html
    nav_path: str = ""
    """The navigation link to highlight."""
    live: bool = False
    """Whether console.js refreshes the parts of the page every few seconds."""
