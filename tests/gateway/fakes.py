"""Small stand-ins for the Protocols of the contract, and a gateway without sockets made of the real rooms."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import limits

from gateway.catalogue.catalogue import Catalogue, Endpoint
from gateway.catalogue.view import Naming
from gateway.contract import (
    MODERN,
    Call,
    Caller,
    Change,
    Client,
    Handler,
    Inbound,
    Json,
    Manifest,
    Offer,
    OwnLists,
    Record,
    Result,
    Route,
    Stage,
    Want,
)
from gateway.edge.correlation import correlation_id, trace_context
from gateway.pipeline import compose
from gateway.policy.decide import Policy
from gateway.policy.shelf import Policies, load
from gateway.policy.source import SHIPPED
from gateway.protocol.asking import Asking
from gateway.protocol.caps import Caps, Most
from gateway.protocol.entry import Entry
from gateway.protocol.floor import FindAgain, Floor
from gateway.protocol.hub import Hub
from gateway.protocol.legacy import Legacy
from gateway.protocol.listen import Listen
from gateway.protocol.modern import Modern
from gateway.protocol.news import News
from gateway.protocol.parked import Parking
from gateway.protocol.relay import Relay
from gateway.protocol.rounds import Rounds
from gateway.protocol.seal import Seal
from gateway.protocol.session import Sessions
from gateway.protocol.standing import Standing
from gateway.protocol.streams import Streams
from gateway.protocol.wire import Pulse
from gateway.sse import Event, Parser
from gateway.stages.approve import Approve
from gateway.stages.audit import Audit, Row
from gateway.stages.authorize import Authorize, checking
from gateway.stages.deadline import Deadline
from gateway.stages.dispatch import Dispatch
from gateway.stages.guard import Guard
from gateway.stages.limit import Limit, Rule
from gateway.stages.resolve import Resolve
from gateway.stages.trace import Trace
from gateway.stages.validate import Validate
from gateway.state.bus import MemoryBus
from gateway.state.tenants import Tenant
from gateway.telemetry.sampling import Sampler

HANDSHAKE = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
SCOPES = frozenset({"mcp:list", "mcp:call", "mcp:call:write"})
ALICE = Caller("acme", "alice", scopes=SCOPES, credential="key1")
BOB = Caller("acme", "bob", scopes=SCOPES, credential="key2")
ECHO: Json = {"name": "echo", "inputSchema": {"type": "object"}}
SERVER_INFO: Json = {"name": "gatehouse", "version": "0"}
WAIT = 5.0
POLICIES = Policies(SHIPPED, load(SHIPPED), ())
"""Those that ship."""

Answer = Callable[[Call], Awaitable[Json]]


async def until(fact: Callable[[], Any]) -> Any:
    """Let the loop turn until the fact holds: for what happens in memory, in a few turns."""
    async with asyncio.timeout(WAIT):
        while not (found := fact()):
            await asyncio.sleep(0)
    return found


class Clock:
    """Puts the running loop's clock forward, so that its timers fall due at once."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._true = self._loop.time
        self._ahead = 0.0
        self._loop.time = lambda: self._true() + self._ahead  # type: ignore[method-assign]

    async def forward(self, seconds: float) -> None:
        self._ahead += seconds
        fired = asyncio.Event()
        self._loop.call_later(0, fired.set)
        await fired.wait()
        await asyncio.sleep(0)


class Paper:
    """An `Outlet` that keeps what was written. `leave` is the client going away."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""
        self.chunks: list[bytes] = []
        self.opened = False
        self.closed = False
        self.over_again = False
        """Whether anything was written after the answer was complete."""
        self.task: asyncio.Task[None] | None = None
        self._gone: list[Callable[[], None]] = []
        self._left = False

    async def answer(self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> None:
        self.over_again |= self.closed or self.opened
        self.status, self.headers, self.body = status, _text(headers), body
        self.closed = True

    async def open(self, headers: Sequence[tuple[bytes, bytes]]) -> None:
        self.over_again |= self.closed or self.opened
        self.status, self.headers = 200, _text(headers)
        self.opened = True
        await asyncio.sleep(0)

    async def write(self, chunk: bytes) -> None:
        self.over_again |= self.closed
        self.chunks.append(chunk)
        await asyncio.sleep(0)

    async def close(self) -> None:
        self.over_again |= self.closed
        self.closed = True

    def on_gone(self, callback: Callable[[], None]) -> None:
        if self._left:
            callback()
        else:
            self._gone.append(callback)

    def cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()

    def leave(self) -> None:
        if self.closed or self._left:
            return
        self._left = True
        for callback in self._gone:
            callback()

    @property
    def json(self) -> Json:
        return json.loads(self.body)

    @property
    def events(self) -> list[Event]:
        """Without those that only give an id."""
        return [each for each in Parser().feed(b"".join(self.chunks)) if each.data]

    @property
    def messages(self) -> list[Json]:
        return [json.loads(each.data) for each in self.events]

    @property
    def last(self) -> Json:
        """The answer, in either form."""
        return self.messages[-1] if self.opened else self.json

    def sent(self, method: str) -> list[Json]:
        return [each for each in self.messages if each.get("method") == method]


def _text(headers: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in headers}


class FakeWire:
    """A `Wire` that keeps what was said, and answers what it is asked from `answers`."""

    def __init__(self, answers: dict[str, Json] | None = None) -> None:
        self.waited = 0.0
        self.said: list[tuple[str, Json]] = []
        self.asked: list[Mapping[str, Json]] = []
        self.hung_up = False
        self._answers = answers or {}

    async def notify(self, method: str, params: Json) -> None:
        self.said.append((method, params))

    async def ask(self, requests: Mapping[str, Json]) -> dict[str, Json]:
        self.asked.append(requests)
        return {key: self._answers[request["method"]] for key, request in requests.items()}

    async def hang_up(self) -> None:
        self.hung_up = True


class FakeBackend:
    """A `Backend` whose lists and answers the test decides."""

    own: OwnLists | None = None

    def __init__(
        self,
        namespace: str = "lab",
        answer: Answer | None = None,
        *,
        manifest: Manifest | None = None,
        trusted: bool = True,
        **offer: Any,
    ) -> None:
        self.namespace = namespace
        self.manifest = manifest or Manifest(effects={"echo": 0})
        self.trusted = trusted
        self.capabilities: Json = {"tools": {}, "resources": {"subscribe": True}, "prompts": {}, "completions": {}}
        self.offered = Offer(**{"tools": (ECHO,), "capabilities": self.capabilities, **offer})
        self.calls: list[Call] = []
        self.watches: list[frozenset[str]] = []
        self.offers = 0
        self._answer = answer or echo
        self._listeners: list[Callable[[Change], None]] = []

    async def offer(self, caller: Caller | None) -> Offer:
        self.offers += 1
        return self.offered

    async def send(self, call: Call) -> Json:
        self.calls.append(call)
        return await self._answer(call)

    def on_change(self, listener: Callable[[Change], None]) -> None:
        self._listeners.append(listener)

    def say(self, change: Change) -> None:
        for listener in self._listeners:
            listener(change)

    async def watch(self, wants: Sequence[Want]) -> None:
        self.watches.append(frozenset().union(*(each.uris for each in wants)))

    async def close(self) -> None:
        pass


async def echo(call: Call) -> Json:
    return {"content": [{"type": "text", "text": "hello"}], "structuredContent": {"got": call.arguments}}


class FakeRows:
    """`SessionRows` in memory."""

    def __init__(self) -> None:
        self.over: set[str] = set()
        self.levels: dict[str, str] = {}
        self.uris: dict[str, frozenset[str]] = {}
        self.answers: list[tuple[str, str, str]] = []
        self.listeners: list[Callable[[str, str, str], None]] = []

    def ended(self, digest: str) -> bool:
        return digest in self.over

    def log_level(self, digest: str) -> str | None:
        return self.levels.get(digest)

    def subscriptions(self, digest: str) -> frozenset[str]:
        return self.uris.get(digest, frozenset())

    async def end(self, digest: str, expires: float) -> None:
        assert expires > time.time()
        self.over.add(digest)
        self.levels.pop(digest, None)
        self.uris.pop(digest, None)

    async def set_log_level(self, digest: str, level: str, expires: float) -> None:
        self.levels[digest] = level

    async def subscribe(self, digest: str, uri: str, expires: float) -> None:
        self.uris[digest] = self.subscriptions(digest) | {uri}

    async def load(self) -> None:
        """Nobody else writes."""

    async def unsubscribe(self, digest: str, uri: str) -> None:
        self.uris[digest] = self.subscriptions(digest) - {uri}

    async def answer(self, digest: str, id: str, value: str) -> None:
        self.answers.append((digest, id, value))

    def on_answer(self, listener: Callable[[str, str, str], None]) -> None:
        self.listeners.append(listener)


class FakeApprovals:
    """Which approvals were used."""

    def __init__(self) -> None:
        self.ids: set[tuple[str, str]] = set()

    async def use(self, tenant: str, id: str) -> bool:
        first = (tenant, id) not in self.ids
        self.ids.add((tenant, id))
        return first


class FakeLog:
    """Where audit rows go."""

    def __init__(self, *, full: bool = False) -> None:
        self.rows: list[Row] = []
        self.full = full
        self.flushed = 0

    def put(self, row: Row) -> None:
        self.rows.append(row)

    async def flush(self) -> None:
        self.flushed += 1
        self.full = False


def a_route(backend: Any = None, definition: Json | None = None, **more: Any) -> Route:
    backend = backend or FakeBackend()
    name = (definition or ECHO)["name"]
    route = Route(
        backend.namespace,
        name,
        f"{backend.namespace}.{name}",
        f"{backend.namespace}_{name}",
        backend,
        definition or ECHO,
    )
    return replace(route, **more)


def a_call(method: str = "tools/call", params: Json | None = None, **more: Any) -> Call:
    """A call of 2026-07-28 by Alice, but for what the test says."""
    given: Json = {
        "client": Client(MODERN, {}),
        "wire": FakeWire(),
        "record": Record(),
        "caller": ALICE,
        "request_id": 1,
        "route": a_route() if method == "tools/call" else None,
        **more,
    }
    return Call(id="cid", method=method, params={"name": "lab_echo"} if params is None else params, **given)


def _raising(reason: Exception) -> Handler:
    async def raising(call: Call) -> Result:
        raise reason

    return raising


class Rig:
    """The whole house between the edge and the backends: real stages, real doors, no sockets."""

    def __init__(
        self,
        *backends: Any,
        endpoints: Sequence[Endpoint] = (),
        tenant: Tenant | None = None,
        calls: str = "100000/second",
        **naming: Any,
    ) -> None:
        self.backends = {backend.namespace: backend for backend in backends}
        self.tenants = {"acme": tenant or Tenant("acme"), "other": Tenant("other")}
        policy = Policy(self.tenants.get, POLICIES)
        self.log = FakeLog()
        self.used = FakeApprovals()
        self.told: list[Call] = []
        self.catalogue = Catalogue(policy, Naming(server_info=SERVER_INFO, **naming))
        rate = limits.parse(calls)
        begin: tuple[tuple[str, Stage], ...] = (
            ("trace", Trace(Sampler(0.0), lambda call, result, exc: self.told.append(call))),
            ("audit", Audit(self.log)),
            ("limit", Limit([Rule("calls", rate.amount, rate.get_expiry())])),
        )
        path = compose(
            (
                *begin,
                ("resolve", Resolve(FindAgain(self.catalogue))),
                ("validate", Validate(1 << 20)),
                ("authorize", Authorize(policy.decide)),
                ("approve", Approve(self.used, checking(policy.decide))),
                ("guard", Guard(1 << 20)),
                ("deadline", Deadline()),
            ),
            Dispatch(),
            "dispatch",
        )
        floor = Floor(
            catalogue=self.catalogue,
            path=path,
            lists=lambda end: compose((*begin, ("authorize", Authorize(policy.decide_list))), end),
            refused=lambda reason: compose(begin, _raising(reason), "edge"),
            correlate=_correlate,
            server_info=SERVER_INFO,
        )
        self.hub = Hub(self.backends.get)
        self.catalogue.on_change(self.hub.changed)
        self.rows = FakeRows()
        self.streams = Streams("w1")
        self.caps = Caps(Most())
        self.bus = MemoryBus("w1")
        self.asking = Asking(self.bus)
        self.relay = Relay(self.bus)
        self.pulse = Pulse()
        seal = Seal([b"k" * 32])
        self.standing = Standing(self.catalogue, self.hub, self.streams, self.rows, self.pulse, self.relay)
        self.entry = Entry(
            Modern(
                floor,
                Listen(self.catalogue, self.hub, self.caps),
                Rounds(seal),
                self.pulse,
                Parking("here"),
                self.relay,
            ),
            Legacy(
                floor,
                Sessions(seal, self.rows),
                self.streams,
                self.asking,
                self.standing,
                self.pulse,
                News(self.bus),
                self.caps,
            ),
        )
        self._endpoints = {each.path: each for each in (Endpoint("/mcp", "underscore"), *endpoints)}
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "Rig":
        for backend in self.backends.values():
            await self.catalogue.add(backend)
        self.catalogue.serve(self._endpoints)
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.hub.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # ---- any request ----

    def begin(
        self,
        body: bytes = b"",
        headers: Json | None = None,
        *,
        verb: str = "POST",
        path: str = "/mcp",
        caller: Caller = ALICE,
        duplicate: str | None = None,
    ) -> tuple[Paper, "asyncio.Task[None]"]:
        """Let the request run, and go on."""
        given = {"content-type": "application/json", "accept": "application/json, text/event-stream", **(headers or {})}
        shown = {name: value for name, value in given.items() if value is not None}
        paper = Paper()
        task = asyncio.create_task(self.entry.serve(Inbound(verb, path, shown, duplicate, body, caller), paper))
        paper.task = task
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return paper, task

    async def request(self, body: bytes = b"", headers: Json | None = None, **more: Any) -> Paper:
        paper, task = self.begin(body, headers, **more)
        await asyncio.wait_for(task, WAIT)
        return paper

    # ---- 2026-07-28 ----

    def begin_modern(
        self,
        method: str,
        params: Json | None = None,
        *,
        id: Any = 1,
        meta: Json | None = None,
        capabilities: Json | None = None,
        headers: Json | None = None,
        **more: Any,
    ) -> tuple[Paper, "asyncio.Task[None]"]:
        params = dict(params or {})
        params["_meta"] = {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientCapabilities": capabilities or {},
            **(meta or {}),
        }
        sent: Json = {"mcp-protocol-version": MODERN, "mcp-method": method}
        if isinstance(name := params.get("name") or params.get("uri"), str):
            sent["mcp-name"] = name
        body = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
        return self.begin(json.dumps(body).encode(), {**sent, **(headers or {})}, **more)

    async def modern(self, method: str, params: Json | None = None, **more: Any) -> Paper:
        paper, task = self.begin_modern(method, params, **more)
        await asyncio.wait_for(task, WAIT)
        return paper

    # ---- the handshake era ----

    async def session(
        self, version: str = "2025-11-25", capabilities: Json | None = None, caller: Caller = ALICE, **more: Any
    ) -> str:
        params = {
            "protocolVersion": version,
            "capabilities": capabilities or {},
            "clientInfo": {"name": "test", "version": "1"},
        }
        body = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        paper = await self.request(json.dumps(body).encode(), caller=caller, **more)
        assert paper.json["result"]["protocolVersion"] == version
        return paper.headers["mcp-session-id"]

    def begin_legacy(
        self,
        session: str | None,
        method: str,
        params: Json | None = None,
        *,
        id: Any = 1,
        headers: Json | None = None,
        **more: Any,
    ) -> tuple[Paper, "asyncio.Task[None]"]:
        body: Json = {"jsonrpc": "2.0", "method": method}
        if id is not None:
            body["id"] = id
        if params is not None:
            body["params"] = params
        return self.begin(json.dumps(body).encode(), {"mcp-session-id": session, **(headers or {})}, **more)

    async def legacy(self, session: str | None, method: str, params: Json | None = None, **more: Any) -> Paper:
        paper, task = self.begin_legacy(session, method, params, **more)
        await asyncio.wait_for(task, WAIT)
        return paper

    async def answer(self, session: str, answer: Json, **more: Any) -> Paper:
        body = json.dumps({"jsonrpc": "2.0", **answer}).encode()
        return await self.request(body, {"mcp-session-id": session}, **more)

    def begin_get(self, session: str, last: str | None = None, **more: Any) -> tuple[Paper, "asyncio.Task[None]"]:
        headers = {"mcp-session-id": session, "last-event-id": last, "accept": "text/event-stream"}
        return self.begin(b"", headers, verb="GET", **more)


def _correlate(headers: Mapping[str, str], meta: Any) -> tuple[str, dict[str, str]]:
    known = meta if isinstance(meta, dict) else None
    trace = trace_context(headers, known)
    return correlation_id(headers, known, trace), trace
