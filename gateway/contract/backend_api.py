"""The whole of what a backend module may know of the gateway."""

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from msgspec import Struct

from gateway.contract.caller import Caller, Json
from gateway.contract.trace_position import TracePosition
from gateway.errors import Fault, Kind

if TYPE_CHECKING:
    import httpx
    from pydantic import BaseModel
    from sqlalchemy.ext.asyncio import AsyncConnection


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a module says of itself beside its server."""

    error_style: Literal["result", "protocol"] = "result"
    """A failed call is a result with `isError`, or a JSON-RPC error."""
    codes: Mapping[Kind, str] = field(default_factory=dict[Kind, str])
    """The contract's own code for each kind."""
    render_error: Callable[[Json, str, Json], Json] | None = None
    """(error object, tool, arguments) -> structuredContent of a failed result; default `{"ok": false, "error": …}`."""
    options: "type[BaseModel] | None" = None
    store: str | None = None
    """The name of its store, when it shares one; default: its namespace."""
    uri_prefixes: tuple[str, ...] = ()
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
    subscribe_by_tenant: bool = False
    """`resources/subscribe` and `unsubscribe` come once for each tenant and URI, within a `here` of one who wants it;
    else once for each URI, and outside of any call."""
    executor: bool = False
    """Works on files of this machine: several replicas need one shared `files_dir`."""


class CurrentCall(Struct, frozen=True):
    """The call in progress, as the module it reached may see it."""

    caller: Caller
    correlation_id: str
    deadline: float
    """When the gateway gives up, on the event loop's clock."""
    meta: Json
    position: TracePosition | None = None
    """Its span: the parent of whatever the module does for it."""


class WorkSpan(AbstractContextManager["WorkSpan"], Protocol):
    """A piece of a module's work, as a span of the trace: it lasts as long as the `with` block, and failed if that
    raises. One that is never entered is told to nobody."""

    @property
    def position(self) -> TracePosition:
        """Its own ids, known before it begins: for records that name it."""
        ...


class RefusedCall(NamedTuple):
    """A call of a tool that the gateway refused before it reached the module."""

    call: CurrentCall
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

    async def request(self, worker: str, topic: str, message: Json, timeout: float = 5.0) -> Json:
        """What that worker's `answer` handler for the topic says. Raises `Fault(UNAVAILABLE)` if there is none."""
        ...

    def respond(self, topic: str, handler: Callable[[Json], Awaitable[Json]]) -> None: ...

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

    def subscribe(self, listener: Callable[[Json, Json], None]) -> AbstractContextManager[None]:
        """As long as the block lasts, `told(peer, event)` hears what a peer says unasked: `event` and `data`.

        It is called within a `here` of whoever the peer belongs to, in every worker.
        """
        ...


class Host(Protocol):
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

    def current_call(self) -> CurrentCall:
        """The call in progress. Raises `LookupError` outside of one."""
        ...

    def span(self, name: str, attributes: Mapping[str, str | int | float | bool] | None = None) -> WorkSpan:
        """A piece of work below the call in progress, or below the piece it is opened in. Within it `here().place` is
        its own, so whatever is invoked or opened there stands below it, also in work that outlives the call.

        `name` is one of few; what differs from one to the next goes into `about`, whose keys get the namespace as their
        prefix: no arguments, no secrets. Raises `LookupError` outside of a call.
        """
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
        """Call another tool by canonical id, through the whole path. Raises `Fault` or `ForeignError`.

        Its span stands below `here().place`, or below the `traceparent` in `meta`: work that is carried on by another
        process names so the call that began it.
        """
        ...

    def has_tool(self, caller: Caller, tool: str) -> bool:
        """Whether the caller has a tool of that canonical id in view."""
        ...

    async def is_authorized(self, caller: Caller) -> bool:
        """Whether the caller's credential, user and tenant are still good: asked before every step of long work."""
        ...

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Work that outlives the call; cancelled at shutdown."""
        ...

    def on_refusal(self, listener: Callable[[RefusedCall], None]) -> None:
        """`told` hears of every call of the module's tools that was refused before it got there. It must be quick: the
        caller waits for its answer."""
        ...
