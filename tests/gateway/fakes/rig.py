"""The gateway between the edge and the backends, without sockets."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import limits

from gateway.catalogue.catalogue import Catalogue, McpEndpointConfig
from gateway.catalogue.list_format import ListFormat
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
from gateway.contract.trace_position import Sampler
from gateway.edge.correlation import correlate
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
from gateway.protocol.tool_search import ToolSearch, tool_access
from gateway.protocol.wire import KeepAlive
from gateway.protocol.worker_events import WorkerEvents
from gateway.protocol.worker_proxy import WorkerProxy
from gateway.stages.approve import Approve
from gateway.stages.audit import Audit
from gateway.stages.authorize import Authorize, recheck
from gateway.stages.deadline import Deadline
from gateway.stages.dispatch import Dispatch
from gateway.stages.guard import Guard
from gateway.stages.limit import Limit, RateRule
from gateway.stages.pipeline import compose
from gateway.stages.resolve import Resolve
from gateway.stages.task import Task
from gateway.stages.trace import Trace
from gateway.stages.validate import Validate
from gateway.state.bus import MemoryBus
from gateway.state.tenants import Tenant
from tests.gateway.fakes.callers import ALICE, POLICIES, SERVER_INFO
from tests.gateway.fakes.response_writer import FakeResponseWriter
from tests.gateway.fakes.stores import FakeApprovals, FakeAuditLog, FakeSessionStore
from tests.gateway.fakes.time import WAIT


def _raise(reason: Exception) -> Handler:
    async def handler(call: Call) -> Result:
        raise reason

    return handler


async def _do_nothing(call: Call) -> Result:
    return {}


class Rig:
    """The gateway between the edge and the backends: real stages and protocol eras, no sockets."""

    def __init__(
        self,
        *backends: Any,
        endpoints: Sequence[McpEndpointConfig] = (),
        tenant: Tenant | None = None,
        rate: str = "100000/second",
        worker: str = "w1",
        **list_format: Any,
    ) -> None:
        self.backends = {backend.namespace: backend for backend in backends}
        self.tenants = {"acme": tenant or Tenant("acme"), "other": Tenant("other")}
        policy = Authorizer(self.tenants.get, POLICIES)
        self.audit_log = FakeAuditLog()
        self.approvals = FakeApprovals()
        self.traced_calls: list[Call] = []
        self.catalogue = Catalogue(policy, ListFormat(server_info=SERVER_INFO, **list_format))
        self.subscriptions = Subscriptions(self.backends.get)
        self.catalogue.on_change(self.subscriptions.publish)
        self.session_store = FakeSessionStore()
        self.streams = EventStreams(worker)
        self.stream_limits = StreamLimits(StreamCaps())
        self.bus = MemoryBus(worker)
        self.seal = TokenSeal([b"k" * 32])
        self.client_requests = ClientRequests(self.bus, self.seal)
        self.worker_proxy = WorkerProxy(self.bus)
        self.keep_alive = KeepAlive()
        self.get_streams = GetStreams(
            self.catalogue, self.subscriptions, self.streams, self.session_store, self.keep_alive, self.worker_proxy
        )
        self.router = self._build_router(self._build_context(policy, rate), self.seal)
        self._endpoints = {each.path: each for each in (McpEndpointConfig("/mcp", "underscore"), *endpoints)}
        self._tasks: set[asyncio.Task[None]] = set()

    def _build_context(self, policy: Authorizer, rate_limit: str) -> EndpointContext:
        """Build the pipelines with the stages in the order of `gateway/wiring/call_path.py`."""
        rate = limits.parse(rate_limit)
        first_stages: tuple[tuple[str, Stage], ...] = (
            ("trace", Trace(Sampler(0.0), [lambda call, result, exc: self.traced_calls.append(call)])),
            ("audit", Audit(self.audit_log)),
            ("limit", Limit([RateRule("calls", rate.amount, rate.get_expiry())])),
        )
        call_handler = compose(
            (
                *first_stages,
                ("resolve", Resolve(RouteLookup(self.catalogue), policy.tenant_denial)),
                ("validate", Validate(1 << 20)),
                ("authorize", Authorize(policy.decide)),
                ("approve", Approve(self.approvals, recheck(policy.decide))),
                ("task", Task()),
                ("guard", Guard(1 << 20)),
                ("deadline", Deadline()),
            ),
            Dispatch(),
            "dispatch",
        )
        list_stages = (*first_stages, ("authorize", Authorize(policy.decide_list)))
        return EndpointContext(
            catalogue=self.catalogue,
            call_handler=call_handler,
            make_local_handler=lambda handler: compose(list_stages, handler),
            make_refusal_handler=lambda reason: compose(first_stages, _raise(reason), "edge"),
            charge_handler=compose(first_stages[2:], _do_nothing),
            correlate=correlate,
            server_info=SERVER_INFO,
            tool_search=ToolSearch(self.catalogue, tool_access(policy.preview)),
            tool_handler=call_handler,
            task_handler=call_handler,
            open_task_id=lambda caller, params: None,
            follow_tasks=_follow_none,
        )

    def _build_router(self, context: EndpointContext, seal: TokenSeal) -> EraRouter:
        """Build both protocol eras."""
        listen = ListenHandler(
            self.catalogue, self.subscriptions, self.stream_limits, context.open_task_id, context.follow_tasks
        )
        sessions, worker_events = McpSessions(seal, self.session_store), WorkerEvents(self.bus)
        self.legacy_era = LegacyEra(
            context,
            sessions,
            self.streams,
            self.client_requests,
            self.get_streams,
            self.keep_alive,
            worker_events,
            self.stream_limits,
        )
        return EraRouter(
            ModernEra(context, listen, MultiRound(seal), self.keep_alive, ParkedCalls("here"), self.worker_proxy),
            self.legacy_era,
        )

    async def __aenter__(self) -> "Rig":
        for backend in self.backends.values():
            await self.catalogue.add(backend)
        self.catalogue.set_endpoints(self._endpoints)
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.subscriptions.close()
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
    ) -> tuple[FakeResponseWriter, "asyncio.Task[None]"]:
        """Start the request in a task, and return its response and the task."""
        all_headers = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            **(headers or {}),
        }
        present = {name: value for name, value in all_headers.items() if value is not None}
        response = FakeResponseWriter()
        task = asyncio.ensure_future(
            self.router.serve(McpHttpRequest(verb, path, present, duplicate, body, caller), response)
        )
        response.task = task
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return response, task

    async def request(self, body: bytes = b"", headers: Json | None = None, **more: Any) -> FakeResponseWriter:
        response, task = self.begin(body, headers, **more)
        await asyncio.wait_for(task, WAIT)
        return response

    # ---- modern era ----

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
    ) -> tuple[FakeResponseWriter, "asyncio.Task[None]"]:
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

    async def modern(self, method: str, params: Json | None = None, **more: Any) -> FakeResponseWriter:
        response, task = self.begin_modern(method, params, **more)
        await asyncio.wait_for(task, WAIT)
        return response

    # ---- handshake era ----

    async def session(
        self, version: str = "2025-11-25", capabilities: Json | None = None, caller: Caller = ALICE, **more: Any
    ) -> str:
        params = {
            "protocolVersion": version,
            "capabilities": capabilities or {},
            "clientInfo": {"name": "test", "version": "1"},
        }
        body = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        response = await self.request(json.dumps(body).encode(), caller=caller, **more)
        assert response.json["result"]["protocolVersion"] == version
        return response.headers["mcp-session-id"]

    def begin_legacy(
        self,
        session: str | None,
        method: str,
        params: Json | None = None,
        *,
        id: Any = 1,
        headers: Json | None = None,
        **more: Any,
    ) -> tuple[FakeResponseWriter, "asyncio.Task[None]"]:
        body: Json = {"jsonrpc": "2.0", "method": method}
        if id is not None:
            body["id"] = id
        if params is not None:
            body["params"] = params
        return self.begin(json.dumps(body).encode(), {"mcp-session-id": session, **(headers or {})}, **more)

    async def legacy(
        self, session: str | None, method: str, params: Json | None = None, **more: Any
    ) -> FakeResponseWriter:
        response, task = self.begin_legacy(session, method, params, **more)
        await asyncio.wait_for(task, WAIT)
        return response

    async def answer(self, session: str, answer: Json, **more: Any) -> FakeResponseWriter:
        body = json.dumps({"jsonrpc": "2.0", **answer}).encode()
        return await self.request(body, {"mcp-session-id": session}, **more)

    def begin_get(
        self, session: str, last_event_id: str | None = None, **more: Any
    ) -> tuple[FakeResponseWriter, "asyncio.Task[None]"]:
        headers = {"mcp-session-id": session, "last-event-id": last_event_id, "accept": "text/event-stream"}
        return self.begin(b"", headers, verb="GET", **more)


async def _follow_none(call: Call, ids: frozenset[str]) -> None:
    """There are no tasks."""
