"""The words of the house.

The first half is what the rooms of the gateway say to each other; from `Manifest` on it is the whole of what a backend
module may know of the gateway. What is made anew for each call is a frozen msgspec struct: as fixed as a frozen
dataclass, and made in a fifth of the time.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from msgspec import Struct

from gateway.errors import Fault, Kind
from gateway.place import Hop, Place

if TYPE_CHECKING:
    import httpx
    from pydantic import BaseModel
    from sqlalchemy.ext.asyncio import AsyncConnection

Json = dict[str, Any]

Result = Json | bytes
"""What a call answers: an object in the newest revision's shape, or such an object already encoded."""

MODERN = "2026-07-28"
"""The revision without a handshake. Every earlier one is of the handshake era."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls, as the credential says: never as a URL, header or argument says."""

    tenant: str
    subject: str
    kind: Literal["user", "service"] = "user"
    groups: frozenset[str] = frozenset()
    scopes: frozenset[str] = frozenset()
    credential: str = ""
    """The key's or token family's id: for audit and revocation, never the secret."""
    expires: float | None = None
    """Unix time after which the credential, and every stream opened with it, is no longer good."""
    resource: str = "/mcp"
    """The endpoint the credential is good for; `/mcp` is good for all below it."""
    client: str = ""
    """The OAuth client that a token was issued to; empty for a key."""
    token: str = ""
    """A token's own id; empty for a key."""
    principal: str = field(init=False)
    """Tenant, kind and subject in one word: what limits, sessions and records are kept by."""
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "principal", f"{self.tenant}/{self.kind}:{self.subject}")
        whole = (self.principal, self.groups, self.scopes, self.credential, self.expires, self.resource, self.token)
        object.__setattr__(self, "_hash", hash(whole))

    def __hash__(self) -> int:
        # Made once: every call looks several things up by its caller.
        return self._hash


class Client(Struct, frozen=True):
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


class Inbound(Struct, frozen=True):
    """One HTTP request to an MCP endpoint, read whole and authenticated."""

    verb: str
    path: str
    headers: Mapping[str, str]
    """Lower-case names; values without surrounding white space."""
    duplicate: str | None
    """A routing header that came more than once."""
    body: bytes
    caller: Caller
    address: str = ""
    """The client's, where it is known."""


class Outlet(Protocol):
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

    __slots__ = ("context", "decision", "found", "hops", "marks", "notes", "outcome", "place", "policies", "started")

    def __init__(self) -> None:
        self.started = perf_counter_ns()
        self.marks: list[tuple[str, int]] = []
        """The stages in the order they were entered, each with its time."""
        self.decision: Literal["allow", "deny", "ask", "none"] = "none"
        self.policies: tuple[str, ...] = ()
        self.context = ""
        """What policy saw of the caller and the circumstances, as JSON; empty when it was not asked."""
        self.found: Route | None = None
        """Where the call leads after all, when only a second look at the lists told."""
        self.outcome: str = "ok"
        """`ok`, `tool_error` (a result with isError), or the kind of the fault."""
        self.notes: dict[str, Any] = {}
        """Small facts for the span and the log, such as `approval`; never arguments or secrets."""
        self.place: Place | None = None
        """Its span, from the first stage on."""
        self.hops: list[Hop] | None = None
        """The requests that were made of remote servers for it."""

    @property
    def stage(self) -> str:
        """The stage entered last."""
        return self.marks[-1][0] if self.marks else "edge"


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


class Answered(Struct, frozen=True):
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
    client: Client
    wire: Wire
    record: Record
    route: Route | None = None
    endpoint: str = "/mcp"
    """The path it came in by: which server's view it sees."""
    request_id: str | int | None = None
    body_bytes: int = 0
    """Size of the message it came in: an upper bound for its arguments."""
    trace: Mapping[str, str] = {}
    """W3C trace context as it came: traceparent, tracestate, baggage."""
    answered: Answered | None = None
    address: str = ""
    """The client's, where it is known."""

    @property
    def leads_to(self) -> Route | None:
        """Its route, also when it was found late."""
        return self.route or self.record.found

    @property
    def tags(self) -> dict[str, str]:
        """What every log record of this call carries."""
        place = self.record.place
        if place is None:
            return {"correlation_id": self.id}
        return {"correlation_id": self.id, "trace_id": place.trace_id, "span_id": place.span_id}

    @property
    def arguments(self) -> Json:
        return self.params.get("arguments") or {}

    @property
    def meta(self) -> Json:
        return self.params.get("_meta") or {}


Handler = Callable[[Call], Awaitable[Result]]
Stage = Callable[[Call, Handler], Awaitable[Result]]
"""One concern of the path. A stage that only looks at the call is a plain function: it raises, or hands on
`call_next(call)` without awaiting it, which saves a coroutine."""


@dataclass(frozen=True, slots=True)
class Offer:
    """Everything a backend lists, as plain JSON in the newest revision's shape."""

    tools: tuple[Json, ...] = ()
    resources: tuple[Json, ...] = ()
    templates: tuple[Json, ...] = ()
    prompts: tuple[Json, ...] = ()
    capabilities: Json = field(default_factory=dict[str, Any])
    instructions: str = ""
    info: Json = field(default_factory=dict[str, Any])


class Change(NamedTuple):
    """What a backend says has changed: one of its lists, or the resource of that URI."""

    kind: Literal["tools", "prompts", "resources", "resource"]
    uri: str = ""
    tenant: str | None = None
    """Whose it is, where the backend serves several tenants and said it in one's call; nobody else hears of it."""
    more: Json | None = None
    """What the backend said beside the URI."""


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

    async def offer(self, caller: Caller | None) -> Offer:
        """What it lists now, for this caller where its lists depend on one."""
        ...

    async def send(self, call: Call) -> Json:
        """Carry the call out. Raises `Fault` or `ForeignError`; anything else is a defect of the backend."""
        ...

    def on_change(self, listener: Callable[[Change], None]) -> None:
        """Tell `listener` whenever it says that something changed."""
        ...

    async def watch(self, uris: frozenset[str]) -> None:
        """Have the backend report updates of exactly these resources from now on."""
        ...

    async def close(self) -> None: ...


# ---- what a backend module may know -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a module says of itself beside its server."""

    faults: Literal["result", "protocol"] = "result"
    """A failed call is a result with `isError`, or a JSON-RPC error."""
    words: Mapping[Kind, str] = field(default_factory=dict[Kind, str])
    """The contract's own code for each kind."""
    dress: Callable[[Json, str, Json], Json] | None = None
    """(error object, tool, arguments) -> structuredContent of a failed result; default `{"ok": false, "error": …}`."""
    options: "type[BaseModel] | None" = None
    store: str | None = None
    """The name of its store, when it shares one; default: its namespace."""
    owns: tuple[str, ...] = ()
    """URI schemes or prefixes that are its own: its resources keep their URIs."""
    effects: Mapping[str, int] = field(default_factory=dict[str, int])
    """0 read, 1 idempotent write, 2 write, 3 destructive or leaving the organisation; by tool name."""
    timeouts: Mapping[str, float] = field(default_factory=dict[str, float])
    migrations: Path | None = None
    """Folder of `NNNN_name.sql` files, applied in order to its store."""
    clean: frozenset[str] | None = None
    """What is taken out of its results: `text` (hidden characters, terminal codes), `secrets`; None: a module's `text`,
    nothing of a remote server."""
    result_bytes: Mapping[str, int] = field(default_factory=dict[str, int])
    """The largest result by tool, or `*` for all; never more than the gateway's own bound."""
    media_types: tuple[str, ...] | None = None
    """The kinds of content its results may hold, such as `image/*`; None: any."""
    executor: bool = False
    """Works on files of this machine: several replicas need one shared `files_dir`."""


class Here(Struct, frozen=True):
    """The call in progress, as the module it reached may see it."""

    caller: Caller
    correlation_id: str
    deadline: float
    """When the gateway gives up, on the event loop's clock."""
    meta: Json
    place: Place | None = None
    """Its span: the parent of whatever the module does for it."""


class Refusal(NamedTuple):
    """A call of a tool that the gateway refused before it reached the module."""

    here: Here
    tool: str
    arguments: Json
    fault: Fault


class Store(Protocol):
    """A tenant's own tables of one store. No statement in it can see another tenant's rows."""

    def transaction(self) -> "AbstractAsyncContextManager[AsyncConnection]":
        """One transaction: committed when the block ends, rolled back when it raises."""
        ...


class Lease(Protocol):
    """A right held by one holder at a time, for `ttl` seconds unless renewed."""

    @property
    def fence(self) -> int:
        """Greater than every earlier holder's: whatever is written under a lower number is a former holder's."""
        ...

    async def renew(self) -> bool:
        """False when it was lost."""
        ...

    async def release(self) -> None: ...


class Bus(Protocol):
    """Messages between workers: in memory for one process, Redis for many."""

    @property
    def worker(self) -> str:
        """This worker's name."""
        ...

    async def publish(self, topic: str, message: Json) -> None:
        """To everybody subscribed right now; nobody else, ever."""
        ...

    def subscribe(self, topic: str) -> AbstractAsyncContextManager[AsyncIterator[Json]]: ...

    async def ask(self, worker: str, topic: str, message: Json, timeout: float = 5.0) -> Json:
        """What that worker's `answer` handler for the topic says. Raises `Fault(UNAVAILABLE)` if there is none."""
        ...

    def answer(self, topic: str, handler: Callable[[Json], Awaitable[Json]]) -> None: ...

    async def push(self, queue: str, message: Json, ttl: float) -> None: ...

    async def pop(self, queue: str, timeout: float) -> Json | None:
        """The oldest message not yet expired, waiting up to `timeout` seconds for one."""
        ...

    async def lease(self, key: str, ttl: float) -> Lease | None:
        """None when somebody else holds it."""
        ...


class Bridge(Protocol):
    """Studios and editors that connected to the gateway from outside, each the peer of one tenant."""

    def peers(self, caller: Caller) -> list[Json]:
        """The caller's tenant's peers of this backend: `id`, `name`, `connected_at`, `last_seen`."""
        ...

    async def request(self, caller: Caller, peer: str | None, payload: Json, timeout: float) -> Json:
        """Send to that peer (None: the only one, or the newest) and wait for its answer by `requestId`.

        Raises `Fault(UNAVAILABLE)` with no peer, `Fault(TIMEOUT)` with no answer.
        """
        ...

    def hearing(self, told: Callable[[Json, Json], None]) -> AbstractContextManager[None]:
        """As long as the block lasts, `told(peer, event)` hears what a peer says unasked: `event` and `data`.

        It is called within a `here` of whoever the peer belongs to.
        """
        ...


class Home(Protocol):
    """Given to `server(home)`, once per entry of `backends:`."""

    @property
    def namespace(self) -> str: ...

    @property
    def options(self) -> Any:
        """The manifest's options model, validated."""
        ...

    @property
    def bus(self) -> Bus: ...

    @property
    def bridge(self) -> Bridge: ...

    @property
    def http(self) -> "httpx.AsyncClient":
        """Guarded against private targets."""
        ...

    @property
    def loopback(self) -> bool:
        """Whether the gateway serves this machine only."""
        ...

    def here(self) -> Here:
        """The call in progress. Raises `LookupError` outside of one."""
        ...

    def store(self, caller: Caller) -> Store: ...

    async def tenants(self) -> tuple[str, ...]:
        """The tenants that have a store of this module. Answers once the gateway serves all its backends: whoever asks
        at its own start can go on at once with what they left unfinished."""
        ...

    def folder(self, caller: Caller) -> Path:
        """The tenant's own folder under `files_dir`; it exists."""
        ...

    async def invoke(self, caller: Caller, tool: str, arguments: Json, meta: Json) -> Json:
        """Call another tool by canonical id, through the whole path. Raises `Fault` or `ForeignError`."""
        ...

    def knows(self, caller: Caller, tool: str) -> bool:
        """Whether the caller has a tool of that canonical id in view."""
        ...

    async def good(self, caller: Caller) -> bool:
        """Whether the caller's credential, user and tenant are still good: asked before every step of long work."""
        ...

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Work that outlives the call; cancelled at shutdown."""
        ...

    def on_refusal(self, told: Callable[[Refusal], None]) -> None:
        """`told` hears of every call of the module's tools that was refused before it got there. It must be quick: the
        caller waits for its answer."""
        ...
