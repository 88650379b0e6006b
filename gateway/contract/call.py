"""What the rooms of the gateway say to each other.

What is made anew for each call is a frozen msgspec struct: as fixed as a frozen dataclass, and made in a fifth of the
time.

The wire of a call that no client waits for.
"""

from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import Any, Literal, NamedTuple, Protocol

from msgspec import Struct

from gateway.contract.backend_api import Manifest
from gateway.contract.caller import MODERN, Caller, Json, Result
from gateway.contract.trace_position import TracePosition, UpstreamHop
from gateway.errors import Fault, Kind


class ClientProfile(Struct, frozen=True):
    """What the client at the other end speaks and can do."""

    version: str
    capabilities: Json
    info: Json | None = None
    log_level: str | None = None
    """The lowest level of log message it wants; None: every level in the handshake era, none in the modern one."""
    session: str | None = None
    """Handshake era only: the digest that names the session in rows and keys, never the session id itself."""

    @property
    def modern(self) -> bool:
        return self.version == MODERN


class McpHttpRequest(Struct, frozen=True):
    """One HTTP request to an MCP endpoint, read whole and authenticated."""

    verb: str
    path: str
    headers: Mapping[str, str]
    """Lower-case names; values without surrounding white space."""
    duplicate: str | None
    """A routing header that came more than once."""
    body: bytes
    caller: Caller
    peer: tuple[str, int] | None = None
    """Host and port at the other end of the connection, where they are known."""


class ResponseWriter(Protocol):
    """Where the answer to one `Inbound` goes."""

    async def answer(self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> None:
        """The whole answer at once."""
        ...

    async def open(self, headers: Sequence[tuple[bytes, bytes]]) -> None:
        """Begin an answer that is written piece by piece."""
        ...

    async def write(self, chunk: bytes) -> None:
        """Waits while the client reads slower than we write."""
        ...

    async def close(self) -> None: ...

    def on_gone(self, callback: Callable[[], None]) -> None:
        """Call back once if the client leaves before the answer is complete."""
        ...

    def cancel(self) -> None:
        """Cancel the task that serves this request."""
        ...


class Wire(Protocol):
    """The way back to the client while a call runs. Only the doors and `approve` open it."""

    @property
    def waited(self) -> float:
        """Seconds so far in which the call waited for a person inside `ask`; the deadline does not count them."""
        ...

    async def notify(self, method: str, params: Json) -> None:
        """Send a notification that belongs to this call: progress or a log message."""
        ...

    async def ask(self, requests: Mapping[str, Json]) -> dict[str, Json]:
        """Put elicitation, sampling or roots requests (`{"method", "params"}`) to the client; answers by the same keys.

        Raises `Fault` when the client cannot be asked or gives up.
        """
        ...

    async def hang_up(self) -> None:
        """End the response but not the call: a client that can resume comes back for the rest."""
        ...


class Record:
    """The one thing stages write to; trace, audit and metrics read it when the call ends."""

    __slots__ = (
        "context",
        "decision",
        "hops",
        "late_route",
        "marks",
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
        """The names of all stages of its path, in order."""
        self.marks: list[int] = []
        """When each of them was entered, as far as it came."""
        self.decision: Literal["allow", "deny", "ask", "none"] = "none"
        self.policies: tuple[str, ...] = ()
        self.context = ""
        """What policy saw of the caller and the circumstances, as JSON; empty when it was not asked."""
        self.late_route: Route | None = None
        """Where the call leads after all, when only a second look at the lists told."""
        self.outcome: str = "ok"
        """`ok`, `tool_error` (a result with isError), or the kind of the fault."""
        self.notes: dict[str, Any] = {}
        """Small facts for the span and the log, such as `approval`; never arguments or secrets."""
        self.position: TracePosition | None = None
        """Its span, from the first stage on."""
        self.hops: list[UpstreamHop] | None = None
        """The requests that were made of remote servers for it."""

    @property
    def stage(self) -> str:
        """The stage entered last."""
        return self.stages[len(self.marks) - 1] if self.marks else "edge"


@dataclass(frozen=True, slots=True)
class Route:
    """Where a name in the caller's view leads."""

    namespace: str
    name: str
    """The backend's own name or URI for it."""
    canonical: str
    """`namespace.tool`, as policy, audit and traces call it."""
    exposed: str
    backend: "Backend"
    definition: Json
    """As the backend listed it."""
    check: Callable[[Json], None] | None = None
    """Raises `Fault` for arguments that its input schema refuses; compiled once per catalogue version."""
    header_schema: Json | None = None
    """The input schema when it mirrors arguments into `Mcp-Param-*` headers, else None."""
    rewrite: Callable[[Json], Json] | None = None
    """Renames the backend's URIs in a result as this view shows them; None: they stay."""
    effect: int = 2
    pinned: bool = True
    """False when its definition is not the one that was approved, and only an approved one may be called."""
    timeout: float = 60.0


class InputResponse(Struct, frozen=True):
    """The client's answer to a question that the gateway itself asked in an earlier round of this very request."""

    state: str
    """What the asking stage sealed then: nobody else could have written it, and it belongs to this very request."""
    responses: Json


class Call(Struct, frozen=True):
    """One request, complete. Built whole at the north door; nothing in it is filled in later but `record`."""

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
    """The path it came in by: which server's view it sees."""
    request_id: str | int | None = None
    body_bytes: int = 0
    """Size of the message it came in: an upper bound for its arguments."""
    trace: Mapping[str, str] = {}
    """W3C trace context as it came: traceparent, tracestate, baggage; and `LINKED` where it came twice."""
    input_response: InputResponse | None = None
    peer: tuple[str, int] | None = None
    """Host and port at the other end of the connection, where they are known."""

    @property
    def resolved_route(self) -> Route | None:
        """Its route, also when it was found late."""
        return self.route or self.record.late_route

    @property
    def tags(self) -> dict[str, str]:
        """What every log record of this call carries."""
        place = self.record.position
        if place is None:
            return {"correlation_id": self.id}
        return {"correlation_id": self.id, "trace_id": place.trace_id, "span_id": place.span_id}

    @property
    def arguments(self) -> Json:
        given = self.params.get("arguments")
        return given if type(given) is dict else {}  # pyright: ignore[reportUnknownVariableType]  # JSON

    @property
    def meta(self) -> Json:
        given = self.params.get("_meta")
        return given if type(given) is dict else {}  # pyright: ignore[reportUnknownVariableType]  # JSON


Handler = Callable[[Call], Awaitable[Result]]

Stage = Callable[[Call, Handler], Awaitable[Result]]

"""One concern of the path. A stage that only looks at the call is a plain function: it raises, or hands on
`call_next(call)` without awaiting it, which saves a coroutine."""


@dataclass(frozen=True, slots=True)
class BackendLists:
    """Everything a backend lists, as plain JSON in the newest revision's shape."""

    tools: tuple[Json, ...] = ()
    resources: tuple[Json, ...] = ()
    templates: tuple[Json, ...] = ()
    prompts: tuple[Json, ...] = ()
    capabilities: Json = field(default_factory=dict[str, Any])
    instructions: str = ""
    info: Json = field(default_factory=dict[str, Any])


class ListChange(NamedTuple):
    """What a backend says has changed: one of its lists, or the resource of that URI."""

    kind: Literal["tools", "prompts", "resources", "resource"]
    uri: str = ""
    owner: str | None = None
    """The tenant or the principal that it was said to, where a backend serves several; nobody else hears of it."""
    details: Json | None = None
    """What the backend said beside the URI."""


class ResourceInterest(NamedTuple):
    """What one client wants to hear of, of one backend's resources."""

    caller: Caller
    client: ClientProfile
    uris: frozenset[str]


class IsolatedLists(Protocol):
    """Lists that are read from a server which a tenant, or a principal, has to itself."""

    @property
    def isolation(self) -> Literal["tenant", "user"]: ...

    def kind(self, client: ClientProfile) -> Hashable:
        """Equal for clients that a server cannot tell apart: it may list less to one that can do less."""
        ...

    def is_running(self, caller: Caller) -> bool:
        """Whether the caller's server runs already."""
        ...

    async def fetch_lists(self, caller: Caller, client: ClientProfile | None) -> BackendLists:
        """What it lists now, to any kind of client that it runs for.

        If need be it is started as for a call of that client; without one only what runs is asked.
        """
        ...


class Backend(Protocol):
    """One way out of the house: a module in this process, a remote server, a child process."""

    @property
    def namespace(self) -> str: ...

    @property
    def manifest(self) -> "Manifest": ...

    @property
    def trusted(self) -> bool:
        """Whether its own annotations may lower an effect: true of modules, never of remote servers."""
        ...

    @property
    def isolated_lists(self) -> IsolatedLists | None:
        """Where its lists differ from one tenant or principal to the next; None: everybody sees the same."""
        ...

    async def fetch_lists(self, caller: Caller | None) -> BackendLists:
        """What it lists now, to the gateway itself."""
        ...

    async def send(self, call: Call) -> Json:
        """Carry the call out. Raises `Fault` or `ForeignError`; anything else is a defect of the backend."""
        ...

    def on_change(self, listener: Callable[[ListChange], None]) -> None:
        """Tell `listener` whenever it says that something changed."""
        ...

    async def set_subscriptions(self, wants: Sequence[ResourceInterest]) -> None:
        """Have the backend report updates of exactly these resources from now on, each to those who want it."""
        ...

    async def close(self) -> None: ...


class NullWire:
    """Of what the house itself calls, or refuses: nobody is there to hear or be asked."""

    waited = 0.0

    async def notify(self, method: str, params: Json) -> None:
        """Nobody hears it."""

    async def ask(self, requests: Mapping[str, Json]) -> dict[str, Json]:
        raise Fault(Kind.UNSUPPORTED, "Nobody is there to be asked.")

    async def hang_up(self) -> None:
        """Nobody is on the line."""
