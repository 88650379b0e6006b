"""The whole house between the edge and the backends, without sockets."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import limits

from gateway.catalogue.catalogue import Catalogue, McpEndpointConfig
from gateway.catalogue.view import ListFormat
from gateway.contract import (
    MODERN,
    Call,
    Caller,
    Handler,
    Json,
    McpHttpRequest,
    Result,
    Stage,
)
from gateway.edge.correlation import correlate
from gateway.pipeline import compose
from gateway.policy.decisions import Authorizer
from gateway.protocol.client_requests import ClientRequests
from gateway.protocol.context import EndpointContext, RouteLookup
from gateway.protocol.era_router import EraRouter
from gateway.protocol.event_streams import EventStreams
from gateway.protocol.get_stream import GetStreams
from gateway.protocol.legacy import LegacyEra
from gateway.protocol.modern import ModernEra
from gateway.protocol.multi_round import MultiRound, ParkedCalls
from gateway.protocol.sealed_tokens import TokenSeal
from gateway.protocol.sessions import McpSessions
from gateway.protocol.stream_limits import StreamCaps, StreamLimits
from gateway.protocol.subscriptions import ListenHandler, Subscriptions
from gateway.protocol.wire import KeepAlive
from gateway.protocol.worker_events import WorkerEvents
from gateway.protocol.worker_proxy import WorkerProxy
from gateway.stages.approve import Approve
from gateway.stages.audit import Audit
from gateway.stages.authorize import Authorize, checking
from gateway.stages.deadline import Deadline
from gateway.stages.dispatch import Dispatch
from gateway.stages.guard import Guard
from gateway.stages.limit import Limit, RateRule
from gateway.stages.resolve import Resolve
from gateway.stages.trace import Trace
from gateway.stages.validate import Validate
from gateway.state.bus import MemoryBus
from gateway.state.tenants import Tenant
from gateway.telemetry.sampling import Sampler
from tests.gateway.fakes.callers import ALICE, POLICIES, SERVER_INFO
from tests.gateway.fakes.response_writer import Paper
from tests.gateway.fakes.rows import FakeApprovals, FakeLog, FakeRows
from tests.gateway.fakes.time import WAIT


def _raising(reason: Exception) -> Handler:
    async def raising(call: Call) -> Result:
        raise reason

    return raising


async def _nothing(call: Call) -> Result:
    return {}


class Rig:
    """The whole house between the edge and the backends: real stages, real doors, no sockets."""

    def __init__(
        self,
        *backends: Any,
        endpoints: Sequence[McpEndpointConfig] = (),
        tenant: Tenant | None = None,
        calls: str = "100000/second",
        worker: str = "w1",
        **naming: Any,
    ) -> None:
        self.backends = {backend.namespace: backend for backend in backends}
        self.tenants = {"acme": tenant or Tenant("acme"), "other": Tenant("other")}
        policy = Authorizer(self.tenants.get, POLICIES)
        self.log = FakeLog()
        self.used = FakeApprovals()
        self.told: list[Call] = []
        self.catalogue = Catalogue(policy, ListFormat(server_info=SERVER_INFO, **naming))
        self.hub = Subscriptions(self.backends.get)
        self.catalogue.on_change(self.hub.changed)
        self.rows = FakeRows()
        self.streams = EventStreams(worker)
        self.caps = StreamLimits(StreamCaps())
        self.bus = MemoryBus(worker)
        self.seal = TokenSeal([b"k" * 32])
        self.asking = ClientRequests(self.bus, self.seal)
        self.relay = WorkerProxy(self.bus)
        self.pulse = KeepAlive()
        self.standing = GetStreams(self.catalogue, self.hub, self.streams, self.rows, self.pulse, self.relay)
        self.entry = self._entry(self._floor(policy, calls), self.seal)
        self._endpoints = {each.path: each for each in (McpEndpointConfig("/mcp", "underscore"), *endpoints)}
        self._tasks: set[asyncio.Task[None]] = set()

    def _floor(self, policy: Authorizer, calls: str) -> EndpointContext:
        """The paths, with the stages in the order that `gateway/wiring/call_path.py` has them."""
        rate = limits.parse(calls)
        begin: tuple[tuple[str, Stage], ...] = (
            ("trace", Trace(Sampler(0.0), lambda call, result, exc: self.told.append(call))),
            ("audit", Audit(self.log)),
            ("limit", Limit([RateRule("calls", rate.amount, rate.get_expiry())])),
        )
        path = compose(
            (
                *begin,
                ("resolve", Resolve(RouteLookup(self.catalogue), policy.barred)),
                ("validate", Validate(1 << 20)),
                ("authorize", Authorize(policy.decide)),
                ("approve", Approve(self.used, checking(policy.decide))),
                ("guard", Guard(1 << 20)),
                ("deadline", Deadline()),
            ),
            Dispatch(),
            "dispatch",
        )
        return EndpointContext(
            catalogue=self.catalogue,
            path=path,
            lists=lambda end: compose((*begin, ("authorize", Authorize(policy.decide_list))), end),
            refused=lambda reason: compose(begin, _raising(reason), "edge"),
            charged=compose(begin[2:], _nothing),
            correlate=correlate,
            server_info=SERVER_INFO,
        )

    def _entry(self, floor: EndpointContext, seal: TokenSeal) -> EraRouter:
        """The doors of both eras."""
        listen = ListenHandler(self.catalogue, self.hub, self.caps)
        sessions, news = McpSessions(seal, self.rows), WorkerEvents(self.bus)
        self.legacy_door = LegacyEra(
            floor, sessions, self.streams, self.asking, self.standing, self.pulse, news, self.caps
        )
        return EraRouter(
            ModernEra(floor, listen, MultiRound(seal), self.pulse, ParkedCalls("here"), self.relay), self.legacy_door
        )

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
        task = asyncio.create_task(self.entry.serve(McpHttpRequest(verb, path, shown, duplicate, body, caller), paper))
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
