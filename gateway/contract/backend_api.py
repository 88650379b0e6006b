"""The API of backend modules: the manifest a module declares, and the host services it receives."""

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from msgspec import Struct

from gateway.contract.caller import Caller, Json
from gateway.contract.routes import ModuleRoute
from gateway.contract.trace_position import TracePosition
from gateway.errors import Fault, Kind

if TYPE_CHECKING:
    import httpx
    from pydantic import BaseModel
    from sqlalchemy.ext.asyncio import AsyncConnection


@dataclass(frozen=True, slots=True)
class Manifest:
    """Properties that a module declares beside its MCP server."""

    error_style: Literal["result", "protocol"] = "result"
    """Render a failed call as a result with `isError`, or as a JSON-RPC error."""
    codes: Mapping[Kind, str] = field(default_factory=dict[Kind, str])
    """The error code of the module's contract for each kind."""
    render_error: Callable[[Json, str, Json], Json] | None = None
    """(error object, tool, arguments) -> structuredContent of a failed result; default `{"ok": false, "error": …}`."""
    options: "type[BaseModel] | None" = None
    store: str | None = None
    """Name of the store, if it is shared with other modules; default: the namespace."""
    uri_prefixes: tuple[str, ...] = ()
    """URI schemes or prefixes that the module owns: its resources keep their URIs."""
    effects: Mapping[str, int] = field(default_factory=dict[str, int])
    """By tool name: 0 read, 1 idempotent write, 2 write, 3 destructive or leaving the organisation."""
    effect_overrides: Mapping[str, int] = field(default_factory=dict[str, int])
    """`effects` of the entry, by name or pattern. Set by the gateway; it takes precedence over `effects`."""
    approvers_only: bool = False
    """Its tools are listed only for users who may approve calls. Set by the gateway for its own tools."""
    trust: Literal["strict", "annotations", "client"] = "annotations"
    """How far the annotations of a remote server count. Set by the gateway from the entry."""
    timeouts: Mapping[str, float] = field(default_factory=dict[str, float])
    migrations: Path | None = None
    """Folder of `NNNN_name.sql` files, applied in order to the store."""
    clean: frozenset[str] | None = None
    """What to remove from results: `text` (hidden characters, terminal codes), `secrets`. None: `text` for modules,
    nothing for remote servers."""
    result_bytes: Mapping[str, int] = field(default_factory=dict[str, int])
    """Maximum result size by tool name, `*` for all; capped by the gateway's own limit."""
    media_types: tuple[str, ...] | None = None
    """Media types allowed in results, such as `image/*`; None: any."""
    subscribe_by_tenant: bool = False
    """Send `resources/subscribe` and `unsubscribe` once per tenant and URI, with a subscriber as the current call;
    otherwise once per URI, outside of any call."""
    dry_run: frozenset[str] = frozenset()
    """Writing tools that honour `_meta.dryRun`: they return what would change and change nothing. The gateway rejects a
    dry run of any other writing tool."""
    idempotency_keys: frozenset[str] = frozenset()
    """Writing tools that honour `_meta.idempotencyKey`: a repeated call with the same key does not write again."""
    tasks: tuple[str, ...] = ()
    """Tools, or patterns of tools, whose calls may become tasks: they may run longer than a connection lasts."""
    executor: bool = False
    """The module works on local files: several replicas need one shared `files_dir`."""
    scopes: Mapping[str, str] = field(default_factory=dict[str, str])
    """Scopes of the module's routes, each with its description for the consent page. Not below `mcp:`."""
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    """Environment variables that set options of the module: variable -> option. They apply to the entry that has the
    name of the module, such as `words` for `package.words`."""
    peer_noun: str = "peer"
    """What messages call a peer of the module, such as `editor`."""


class CurrentCall(Struct, frozen=True):
    """The call in progress, as a module sees it."""

    caller: Caller
    correlation_id: str
    deadline: float
    """Time at which the call times out, on the event loop's clock."""
    meta: Json
    position: TracePosition | None = None
    """Its span: the parent of the module's own spans."""


class WorkSpan(AbstractContextManager["WorkSpan"], Protocol):
    """A span for a part of a module's work. It covers the `with` block and is marked failed if the block raises.
    A span that is never entered is not recorded."""

    @property
    def position(self) -> TracePosition:
        """Its trace position, known before it starts."""
        ...


class ToolTraits(NamedTuple):
    """How a module may call a tool of another backend."""

    allows_dry_run: bool
    may_repeat: bool
    """Whether a call that is repeated with the same `_meta.idempotencyKey` may write a second time."""


class RefusedCall(NamedTuple):
    """A tool call that the gateway rejected before it reached the module."""

    call: CurrentCall
    tool: str
    arguments: Json
    fault: Fault


class Store(Protocol):
    """A tenant's tables in one store. Its statements never see another tenant's rows."""

    def transaction(self) -> "AbstractAsyncContextManager[AsyncConnection]":
        """Open a transaction: commits when the block ends, rolls back when it raises."""
        ...


class Lease(Protocol):
    """An exclusive lease that expires after `ttl` seconds unless renewed."""

    @property
    def fence(self) -> int:
        """Fencing token, greater than that of every earlier holder."""
        ...

    async def renew(self) -> bool:
        """Extend the lease. Returns False if it was lost."""
        ...

    async def release(self) -> None: ...


class Bus(Protocol):
    """Messages between workers: in memory for one process, Redis for many."""

    @property
    def worker(self) -> str:
        """Name of this worker."""
        ...

    async def publish(self, topic: str, message: Json) -> None:
        """Send to the current subscribers; the message is not stored."""
        ...

    def subscribe(self, topic: str) -> AbstractAsyncContextManager[AsyncIterator[Json]]: ...

    async def request(self, worker: str, topic: str, message: Json, timeout: float = 5.0) -> Json:
        """Return the response of that worker's handler for the topic. Raises `Fault(UNAVAILABLE)` if it has none."""
        ...

    def respond(self, topic: str, handler: Callable[[Json], Awaitable[Json]]) -> None: ...

    async def push(self, queue: str, message: Json, ttl: float) -> None: ...

    async def pop(self, queue: str, timeout: float) -> Json | None:
        """Return the oldest unexpired message, waiting up to `timeout` seconds for one."""
        ...

    async def lease(self, key: str, ttl: float) -> Lease | None:
        """Acquire the lease; None if it is held elsewhere."""
        ...


class PeerProtocol(Protocol):
    """The line protocol of a module's peers. It runs in the worker that holds the session."""

    def parse(self, line: str) -> Json:
        """Parse a response, which has the `requestId` of its request. Raises `Fault(INVALID_INPUT)`."""
        ...

    async def handshake(self, request: "Callable[[Json], Awaitable[Json]]") -> Sequence[str]:
        """Send the first requests and return the capabilities of the peer. Raises `Fault(DENIED)` to refuse the peer.

        `request` returns the response of the peer. Requests of callers wait until the handshake is complete.
        """
        ...

    def lost_handshake(self, response: Json) -> bool:
        """Whether the peer says that it needs a handshake: it is repeated, and then the request."""
        ...


class Peers(Protocol):
    """Programs that connect to the gateway through a route of the module and answer its requests.

    A peer belongs to the tenant and the credential that opened its session. Any worker can use the session. Methods
    with a `session_id` raise `Fault(NOT_FOUND)` for a session that has ended or belongs to another credential.
    """

    async def open(
        self, caller: Caller, name: str, protocol: PeerProtocol, *, identity: str = "", about: Json | None = None
    ) -> str:
        """Open a session and return its id.

        It replaces the session of the same credential with the same `identity`, the peer's own id. Without one, the
        name identifies the peer. `about` is listed with the peer.
        """
        ...

    async def read(self, caller: Caller, session_id: str, timeout: float) -> Json | None:
        """Return the next request for the peer, with its `requestId`; None after `timeout` seconds.

        A cancelled read consumes no request.
        """
        ...

    async def write(self, caller: Caller, session_id: str, line: str) -> None:
        """Pass on a response of the peer. A response that is late or answers no request is dropped."""
        ...

    async def close(self, caller: Caller, session_id: str) -> None: ...

    def connection_lost(self, session_id: str) -> None:
        """The connection broke during a read: the session ends unless the peer reads again within seconds."""
        ...

    def publish_event(self, caller: Caller, session_id: str, event: Json) -> None:
        """Pass an event of the peer to the listeners of all workers. For sessions that this worker holds."""
        ...

    def list(self, caller: Caller) -> Sequence[Json]:
        """List the peers of the caller's tenant on all workers, oldest first: `id`, `name`, `owner`, `state`,
        `identity`, `about`, `connected`, `connected_at`, `last_seen`, `capabilities` and more."""
        ...

    async def request(self, caller: Caller, peer: str | None, message: Json, timeout: float) -> Json:
        """Send a request to the peer (None: the newest one) and return its response.

        Raises `Fault(UNAVAILABLE)` without a peer, `Fault(TIMEOUT)` without a response.
        """
        ...

    def subscribe(self, listener: Callable[[Json, Json], None]) -> AbstractContextManager[None]:
        """Within the block, call `listener(peer, event)` for each event that a peer sends.

        It runs in every worker, with the peer's owner as the current call.
        """
        ...


class Host(Protocol):
    """Services of the gateway for one module; passed to `server(host)` once per entry of `backends:`."""

    @property
    def namespace(self) -> str: ...

    @property
    def options(self) -> Any:
        """The validated instance of the manifest's options model."""
        ...

    @property
    def bus(self) -> Bus: ...

    @property
    def peers(self) -> Peers: ...

    @property
    def http(self) -> "httpx.AsyncClient":
        """HTTP client that rejects private addresses."""
        ...

    @property
    def loopback(self) -> bool:
        """Whether the gateway listens on loopback only."""
        ...

    def current_call(self) -> CurrentCall:
        """Return the call in progress. Raises `LookupError` outside of a call."""
        ...

    def span(self, name: str, attributes: Mapping[str, str | int | float | bool] | None = None) -> WorkSpan:
        """Create a child span of the current call or of the enclosing span. Inside it, `current_call().position` is the
        new span, so nested spans and `invoke` become its children, even in work that outlives the call.

        Use few distinct names; variable values belong in `attributes`, whose keys are prefixed with the namespace. No
        arguments, no secrets. Raises `LookupError` outside of a call.
        """
        ...

    def store(self, caller: Caller) -> Store: ...

    async def tenants(self) -> tuple[str, ...]:
        """List the tenants that have a store of this module. Waits until all backends are served, so that a module can
        resume unfinished work from its own start."""
        ...

    def folder(self, caller: Caller) -> Path:
        """Return the absolute path of the tenant's folder under `files_dir`, creating it if needed."""
        ...

    async def invoke(self, caller: Caller, tool: str, arguments: Json, meta: Json) -> Json:
        """Call another tool by canonical id through all stages. Raises `Fault` or `ForeignError`.

        Its span is a child of `current_call().position`, or of the `traceparent` in `meta`, which work resumed by
        another process uses to name the original call.
        """
        ...

    def has_tool(self, caller: Caller, tool: str) -> bool:
        """Whether a tool with this canonical id is in the caller's view."""
        ...

    def find_tool(self, caller: Caller, tool: str) -> "ToolTraits | None":
        """Return how the tool may be called, or None if it is not in the caller's view."""
        ...

    async def is_authorized(self, caller: Caller) -> bool:
        """Whether the caller's credential, user and tenant are still valid. Check before every step of long work."""
        ...

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work that outlives the call; cancelled at shutdown."""
        ...

    def add_routes(self, *routes: ModuleRoute) -> None:
        """Add HTTP and WebSocket routes, which are served as long as the entry is. Call it in `server(host)`."""
        ...

    def on_refusal(self, listener: Callable[[RefusedCall], None]) -> None:
        """Call `listener` for each tool call rejected before it reached the module. The caller waits for it."""
        ...
