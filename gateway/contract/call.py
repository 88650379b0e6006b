"""The types that packages of the gateway exchange: `Call`, `Route`, `Record`, and the Protocols on both sides of them.

Objects created for each call are frozen msgspec structs: immutable like a frozen dataclass, at a fifth of its cost.
"""

from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import Any, Literal, NamedTuple, Protocol

from msgspec import Struct

from gateway.contract.backend_api import Manifest
from gateway.contract.caller import MODERN, Caller, Json, Result
from gateway.contract.tasks import TaskControl, TaskSupport
from gateway.contract.trace_position import TracePosition, UpstreamHop
from gateway.errors import Fault, Kind


class ClientProfile(Struct, frozen=True):
    """The protocol version and capabilities of a client."""

    version: str
    capabilities: Json
    info: Json | None = None
    log_level: str | None = None
    """Minimum log level to send; None means all levels in the handshake era and no logs in the modern era."""
    session: str | None = None
    """Handshake era only: digest of the session id, used in rows and keys instead of the id."""

    @property
    def modern(self) -> bool:
        return self.version == MODERN


class McpHttpRequest(Struct, frozen=True):
    """One authenticated HTTP request to an MCP endpoint, with its complete body."""

    method: str
    path: str
    headers: Mapping[str, str]
    """Names in lower case, values stripped."""
    duplicate_header: str | None
    """Name of a routing header that was sent more than once."""
    body: bytes
    caller: Caller
    peer: tuple[str, int] | None = None
    """Host and port of the client, if known."""


class ResponseWriter(Protocol):
    """Writes the HTTP response of one `McpHttpRequest`."""

    async def send(self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> None:
        """Send a complete response."""
        ...

    async def open(self, headers: Sequence[tuple[bytes, bytes]]) -> None:
        """Start a streamed response."""
        ...

    async def write(self, chunk: bytes) -> None:
        """Write one chunk; waits while the client reads more slowly than the gateway writes."""
        ...

    async def close(self) -> None: ...

    def on_disconnect(self, callback: Callable[[], None]) -> None:
        """Call back once if the client disconnects before the response is complete."""
        ...

    def cancel(self) -> None:
        """Cancel the task that serves this request."""
        ...


class Wire(Protocol):
    """Channel to the client while a call runs. Only `gateway.protocol` and the approve stage use `ask`."""

    @property
    def waited(self) -> float:
        """Seconds that the call has waited inside `ask`; excluded from its deadline."""
        ...

    async def notify(self, method: str, params: Json) -> None:
        """Send a notification of this call: progress or a log message."""
        ...

    async def ask(self, requests: Mapping[str, Json]) -> dict[str, Json]:
        """Send elicitation, sampling or roots requests (`{"method", "params"}`); return the answers by the same keys.

        Raises `Fault` if the client does not support the request or disconnects.
        """
        ...

    def pause(self) -> AbstractContextManager[None]:
        """Exclude the time within the block from the deadline: the call waits for its user."""
        ...

    async def end_response(self) -> None:
        """End the response but not the call; a client that supports resumption fetches the rest later."""
        ...


class Record:
    """The mutable part of a call: stages write to it; trace, audit and metrics read it when the call finishes."""

    __slots__ = (
        "context",
        "decision",
        "entered_at",
        "hops",
        "intent",
        "late_route",
        "notes",
        "outcome",
        "policies",
        "position",
        "stages",
        "started",
    )

    def __init__(self) -> None:
        self.started = perf_counter_ns()
        self.stages: tuple[str, ...] = ()
        """Names of all stages of the path, in order."""
        self.entered_at: list[int] = []
        """Entry time of each stage reached so far, in nanoseconds."""
        self.decision: Literal["allow", "deny", "ask", "none"] = "none"
        self.policies: tuple[str, ...] = ()
        self.context = ""
        """Caller and context as the policies saw them, as JSON; empty without a decision."""
        self.intent = 0
        """Number of the audit record that was committed before the call was sent; 0 if there is none."""
        self.late_route: Route | None = None
        """The route, if it was found only after a refresh of the lists."""
        self.outcome: str = "ok"
        """`ok`, `tool_error` (a result with isError), or the kind of the fault."""
        self.notes: dict[str, Any] = {}
        """Small values for span and log, such as `approval`; no arguments, no secrets."""
        self.position: TracePosition | None = None
        """Position in the trace, set by the first stage."""
        self.hops: list[UpstreamHop] | None = None
        """Requests sent to remote servers on behalf of this call."""

    @property
    def stage(self) -> str:
        """Name of the stage entered last."""
        return self.stages[len(self.entered_at) - 1] if self.entered_at else "edge"


@dataclass(frozen=True, slots=True)
class RouteShape:
    """The arguments of a tool that the operator of an endpoint withholds from its callers."""

    fixed: Json
    """Arguments that the gateway adds to every call."""
    withheld: frozenset[str]
    """Arguments that a caller may not send: the fixed and the hidden ones."""

    def complete(self, arguments: Json) -> Json:
        """The arguments of a call with the fixed ones. A copy, because a module may change what it gets."""
        return {**arguments, **deepcopy(self.fixed)}


@dataclass(frozen=True, slots=True)
class Route:
    """The tool, prompt or resource that a name in the caller's view refers to."""

    namespace: str
    name: str
    """Name or URI as the backend knows it."""
    canonical: str
    """Canonical id, `namespace.tool`; used by policy, audit and traces."""
    exposed: str
    backend: "Backend"
    definition: Json
    """Definition as listed by the backend."""
    check: Callable[[Json], None] | None = None
    """Raises `Fault` for arguments that violate the input schema; compiled once per catalogue version."""
    header_schema: Json | None = None
    """The input schema if it maps arguments to `Mcp-Param-*` headers, else None."""
    rewrite: Callable[[Json], Json] | None = None
    """Rewrites the backend's URIs in a result to those of this view; None if no rewriting is needed."""
    effect: int = 2
    needs_approval: bool = False
    """Whether the effect calls for approval, by `trust` of the backend; policies decide whether it is required."""
    allows_dry_run: bool = False
    """Whether a call with `_meta.dryRun` is safe: the tool reads, or it declares support."""
    may_repeat: bool = True
    """Whether a call that is repeated with the same `_meta.idempotencyKey` may write a second time."""
    pinned: bool = True
    """False if the definition differs from the accepted one and `catalogue.pins: deny` forbids calling it."""
    timeout: float = 60.0
    shape: RouteShape | None = None
    """Arguments that the endpoint's operator withholds from callers; None if there are none."""
    endpoint: str | None = None
    """Endpoint to which calls that the backend makes for this call are confined; None for that of the credential."""
    task_support: TaskSupport = "forbidden"
    """Whether a call may become a task of the gateway."""
    has_upstream_tasks: bool = False
    """Whether the server runs calls of this tool as tasks of 2025-11-25."""


class InputResponse(Struct, frozen=True):
    """The client's answer to an input request that the gateway itself sent in an earlier round of this request."""

    state: str
    """State sealed by the stage that asked; authenticated and bound to this request."""
    responses: Json


class Call(Struct, frozen=True, kw_only=True):
    """One complete request. Built by `gateway.protocol`; immutable except for `record`."""

    id: str
    """The correlation id."""
    caller: Caller
    method: str
    params: Json
    client: ClientProfile
    wire: Wire
    record: Record
    route: Route | None = None
    endpoint: str = "/mcp"
    """Path of the MCP endpoint, which selects the view."""
    request_id: str | int | None = None
    body_bytes: int = 0
    """Size of the request body: an upper bound for the size of the arguments."""
    trace: Mapping[str, str] = {}
    """W3C trace context: traceparent, tracestate, baggage; and `HTTP_TRACEPARENT` if `_meta` named another parent."""
    input_response: InputResponse | None = None
    peer: tuple[str, int] | None = None
    """Host and port of the client, if known."""
    tools_view: str = ""
    """How the client asks to be shown tools, if it asks: `list`, `search` or `auto`."""
    task: TaskControl | None = None
    """The task that this call is or may become; None if its client cannot use tasks."""
    upstream_session: str | None = None
    """Session of the remote server that a request about a task must use; None: the principal's own."""

    @property
    def resolved_route(self) -> Route | None:
        """The route, including one found after a refresh of the lists."""
        return self.route or self.record.late_route

    @property
    def log_fields(self) -> dict[str, str]:
        """Fields of every log record of this call."""
        place = self.record.position
        if place is None:
            return {"correlation_id": self.id}
        return {"correlation_id": self.id, "trace_id": place.trace_id, "span_id": place.span_id}

    @property
    def arguments(self) -> Json:
        value = self.params.get("arguments")
        return value if type(value) is dict else {}  # pyright: ignore[reportUnknownVariableType]  # JSON

    @property
    def meta(self) -> Json:
        value = self.params.get("_meta")
        return value if type(value) is dict else {}  # pyright: ignore[reportUnknownVariableType]  # JSON


Handler = Callable[[Call], Awaitable[Result]]
Stage = Callable[[Call, Handler], Awaitable[Result]]
"""One step of the call path. A stage that only inspects the call is a plain function: it raises, or returns
`call_next(call)` without awaiting it, which saves a coroutine."""


@dataclass(frozen=True, slots=True)
class BackendLists:
    """All lists of a backend, as plain JSON in the newest revision's shape."""

    tools: tuple[Json, ...] = ()
    resources: tuple[Json, ...] = ()
    templates: tuple[Json, ...] = ()
    prompts: tuple[Json, ...] = ()
    capabilities: Json = field(default_factory=dict[str, Any])
    instructions: str = ""
    info: Json = field(default_factory=dict[str, Any])
    variants: tuple[Json, ...] = ()
    """Other definitions of listed tools, by other processes of the same server."""


class ListChange(NamedTuple):
    """Change reported by a backend: one of its lists, or the resource with this URI."""

    kind: Literal["tools", "prompts", "resources", "resource", "task"]
    """`task`: a task of the owner changed its status; `uri` is its id and `details` its description."""
    uri: str = ""
    owner: str | None = None
    """Tenant or principal to notify, if the backend is isolated; None notifies everyone."""
    details: Json | None = None
    """Further parameters of the backend's notification."""


class ResourceInterest(NamedTuple):
    """The resources of one backend that one client is subscribed to."""

    caller: Caller
    client: ClientProfile
    uris: frozenset[str]


class IsolatedLists(Protocol):
    """Lists of a server that runs separately for each tenant or principal."""

    @property
    def isolation(self) -> Literal["tenant", "user"]: ...

    def kind(self, client: ClientProfile) -> Hashable:
        """Key of clients with equal capabilities: a server may list less to a client that supports less."""
        ...

    def is_running(self, caller: Caller) -> bool:
        """Whether the caller's server is running."""
        ...

    async def fetch_lists(self, caller: Caller, client: ClientProfile | None) -> BackendLists:
        """Fetch the current lists. Starts the server if a client is passed and it is not running."""
        ...


class Backend(Protocol):
    """A backend: a module in this process, a remote server or a child process."""

    @property
    def namespace(self) -> str: ...

    @property
    def manifest(self) -> "Manifest": ...

    @property
    def trusted(self) -> bool:
        """Whether its annotations may lower a tool's effect: True for modules, False for remote servers."""
        ...

    @property
    def isolated_lists(self) -> IsolatedLists | None:
        """The lists per tenant or principal; None if all callers see the same lists."""
        ...

    async def fetch_lists(self, caller: Caller | None) -> BackendLists:
        """Fetch the current lists on behalf of the gateway itself."""
        ...

    async def send(self, call: Call) -> Json:
        """Execute the call. Raises `Fault` or `ForeignError`; any other exception is a defect of the backend."""
        ...

    def task_session(self, call: Call) -> str:
        """Where the task that this call has created lives: `worker` for a process of this worker, else the server's
        session; empty if any session can use it."""
        ...

    def on_change(self, listener: Callable[[ListChange], None]) -> None:
        """Call `listener` for each change that the backend reports."""
        ...

    async def set_subscriptions(self, interests: Sequence[ResourceInterest]) -> None:
        """Replace the set of subscribed resources."""
        ...

    async def close(self) -> None: ...


class DefinitionGuard(Protocol):
    """Prevents calls of tools with a changed definition. Remote backends ask it before they send a call."""

    async def prepare(self, call: Call) -> None:
        """Have the lists of the caller's own server, if it has one, before the call."""
        ...

    async def compare(self, owner: str | None, read: "Callable[[], Awaitable[BackendLists]]") -> None:
        """Read the lists of a server that was started or reconnected, and compare the definitions with the accepted
        ones. Raises `Fault` if that fails."""
        ...

    def check(self, call: Call) -> None:
        """Raise `UnknownName` if the definition of the called tool is not accepted."""
        ...


class NullWire:
    """The wire of a call without a client: drops notifications and rejects requests."""

    waited = 0.0

    async def notify(self, method: str, params: Json) -> None:
        """Drop the notification."""

    async def ask(self, requests: Mapping[str, Json]) -> dict[str, Json]:
        raise Fault(Kind.UNSUPPORTED, "This call has no client that could be asked.")

    def pause(self) -> AbstractContextManager[None]:
        """Do nothing: there is no user."""
        return nullcontext()

    async def end_response(self) -> None:
        """Do nothing: there is no response."""
