"""The composition root: settings become objects, objects become one ASGI app."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from importlib.metadata import version
from typing import Any, Final, cast

from fastapi import APIRouter, FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.catalogue.catalogue import Catalogue, Endpoint
from gateway.catalogue.view import Naming
from gateway.contract import (
    MODERN,
    Bus,
    Call,
    Caller,
    Change,
    Client,
    Handler,
    Json,
    Record,
    Result,
    Stage,
)
from gateway.edge.api.backends import backends_router
from gateway.edge.api.policy import policy_router
from gateway.edge.bridge import bridge_router
from gateway.edge.bridge_godot import godot_bridge
from gateway.edge.correlation import correlation_id, new_id, trace_context
from gateway.edge.door import Door
from gateway.edge.guard import Guard, defaults
from gateway.edge.health import PATHS, health_router
from gateway.edge.lane import Lane
from gateway.edge.metrics import for_operators, metrics_router
from gateway.errors import Fault
from gateway.outbound import client as outbound_client
from gateway.parts.health import Healths
from gateway.parts.identity import Identity
from gateway.parts.limiting import limit_stage
from gateway.parts.remembering import Remembering
from gateway.parts.served import Backends, endpoints
from gateway.parts.tasks import Tasks
from gateway.parts.watching import Watching, backend_families, counted, shown
from gateway.pipeline import compose
from gateway.policy.decide import Policy
from gateway.policy.explain import Explain
from gateway.policy.shelf import Policies
from gateway.policy.source import SHIPPED, BadPolicies
from gateway.protocol.asking import Asking
from gateway.protocol.caps import Caps, Most
from gateway.protocol.cursors import SealedCursors
from gateway.protocol.entry import Entry
from gateway.protocol.floor import FindAgain, Floor, Refusal
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
from gateway.settings import Settings, is_loopback
from gateway.stages.approve import Approve
from gateway.stages.audit import Audit
from gateway.stages.authorize import Authorize, checking
from gateway.stages.deadline import Deadline
from gateway.stages.dispatch import Dispatch
from gateway.stages.guard import Guard as ResultGuard
from gateway.stages.limit import Limit
from gateway.stages.resolve import Resolve
from gateway.stages.share import Bounds, Share
from gateway.stages.validate import Validate
from gateway.state.approvals import Approvals
from gateway.state.audit import AuditLog
from gateway.state.bus import open_bus
from gateway.state.catalogue import CatalogueRows
from gateway.state.database import Database
from gateway.state.secrets import load_secret
from gateway.state.sessions import Sessions as SessionRows
from gateway.state.store import open_stores
from gateway.state.tenants import TenantChange, Tenants
from gateway.telemetry.families import Family
from gateway.telemetry.log import Lines
from gateway.upstream.bridge import EVERYWHERE, Bridges
from gateway.upstream.home import HERE, House, SilentWire
from gateway.upstream.load import LoadError
from gateway.upstream.local import LocalBackend

log = logging.getLogger("gatehouse")

VERSION: Final = version("gatehouse")
SERVER_INFO: Final[Json] = {"name": "gatehouse", "title": "Gatehouse", "version": VERSION}


class Gatehouse:
    """One running gateway. Open it with `Gatehouse.open`; `asgi` serves it; `apply` changes what it serves."""

    asgi: ASGIApp

    def __init__(self, settings: Settings, public_url: str) -> None:
        self.settings = settings
        self.public_url = public_url
        self.draining = False
        self._exit = AsyncExitStack()
        self._tasks = Tasks()
        self._opened = asyncio.Event()
        self._endpoints: dict[str, Endpoint] = {}

    @classmethod
    async def open(cls, settings: Settings, lines: Lines, port: int | None = None) -> "Gatehouse":
        """`port` is the one that was bound, where the settings leave it open."""
        house = cls(settings, settings.server.public_url_at(settings.server.port if port is None else port))
        try:
            await house._build(lines)
        except BaseException:
            await house.close()
            raise
        return house

    def leave(self) -> None:
        """Say that we are about to leave: readiness fails from now on."""
        self.draining = True

    async def drain(self) -> None:
        """End the streams that would never end by themselves, and the calls that wait for their clients."""
        self.draining = True
        self._hub.close()
        self._parking.close()
        await self._bridges.leave()

    async def close(self) -> None:
        """Finish what is under way, and write down what is left."""
        self.draining = True
        await self._exit.aclose()

    # ---- building ----

    async def _build(self, lines: Lines) -> None:
        settings, leave = self.settings, self._exit.push_async_callback
        at = settings.database.url
        url = at.get_secret_value() if at is not None else None
        self.database = await Database.open(settings.data_dir, url)
        leave(self.database.close)
        secrets = settings.data_dir / "secrets"
        self.identity = identity = await Identity.open(settings, self.database, self.public_url, self._serves)
        leave(identity.close)
        self.keys = identity.keys
        self.tenants = await Tenants.open(self.database)
        rows = await SessionRows.open(self.database)
        self.audit = await AuditLog.open(settings.data_dir, settings.audit.keep_days, settings.audit.max_records)
        leave(self.audit.close)
        self.stores = stores = await open_stores(settings.files_dir / "stores", url, settings.database.connections)
        leave(stores.close)
        http = outbound_client()
        leave(http.aclose)
        bus_at = settings.bus.url
        bus = await open_bus(bus_at.get_secret_value() if bus_at is not None else None, settings.bus.prefix)
        leave(bus.close)
        self._bridges = bridges = Bridges(bus)
        self._tasks.spawn(bridges.run())

        self.policies = await self._read_policies()
        policy = Policy(self.tenants.get, self.policies)
        lists = CatalogueRows(self.database)
        memory = Remembering(lists, pins=settings.catalogue.pins == "warn")
        seal = Seal([load_secret(secrets, "seal")])
        self.catalogue = Catalogue(policy, self._naming(seal), settings.catalogue.keep_stale, memory, bus)
        self.watching = Watching(settings, VERSION, lines)
        leave(self.watching.close)
        lay_short, lay_refused = self._lay_path(policy, limit_stage(settings.limits, bus, settings.bus.prefix))
        house = House(
            stores=stores,
            files=settings.files_dir,
            bus=bus,
            http=http,
            loopback=is_loopback(settings.server.host),
            bridge=bridges.for_backend,
            invoke=self._invoke,
            knows=self._knows,
            good=self._good,
            spawn=self._tasks.spawn,
            opened=self._opened.wait,
        )
        self._backends = Backends(settings, house, SERVER_INFO)
        self._hub = Hub(self._backends.get)
        self.catalogue.on_change(self._hub.changed)
        floor = Floor(
            catalogue=self.catalogue,
            path=self.path,
            lists=lay_short,
            refused=lay_refused,
            correlate=_correlate,
            server_info=SERVER_INFO,
            challenge=identity.challenge.insufficient if identity.challenge else None,
        )
        pulse = Pulse()
        self._tasks.spawn(pulse.run())
        self._tasks.spawn(self.catalogue.keep_fresh(settings.catalogue.ttl))
        self._tasks.spawn(self.catalogue.hear_replicas())
        self.policies.on_change(self._tell_of_policies)
        self._tasks.spawn(self.policies.watch())
        self._news = News(bus)
        self._news.on("change", self._changed_elsewhere)
        entry = self._entry(floor, seal, rows, bus, pulse)
        self._tasks.spawn(self._news.run())
        await identity.credentials.on_revoke(identity.watch(self._good, self._tasks.spawn))
        authenticate, max_body = identity.authenticate, settings.server.max_body_bytes
        door = Door(authenticate, entry.serve, max_body, identity.unauthenticated, identity.tenures)
        explained = policy_router(authenticate, self.why, self.seen_tools)
        shown = backends_router(authenticate, Healths(self.catalogue, lists, self._backends.get).report)
        metrics = self._metrics(bus, bridges)
        self.plain = self._plain_routes(
            bridge_router(bridges, authenticate), explained, shown, metrics, *identity.routers
        )
        self.ops = for_operators(self.plain)
        self.plain.router.routes.append(godot_bridge(bridges, authenticate))
        guard = self._guarded(Front(door, self.plain))
        self.asgi = guard
        self.lane = Lane(door, guard.host_allowed)
        leave(self._backends.close)
        leave(self._tasks.stop)
        await self.apply(settings)
        self._opened.set()

    async def _read_policies(self) -> Policies:
        try:
            return await Policies.open(self.settings.policies.dir or SHIPPED)
        except BadPolicies as exc:
            raise LoadError("policies: " + "; ".join(exc.lines)) from exc

    def _tell_of_policies(self) -> None:
        """Every caller's lists may be others now."""
        for namespace in self.catalogue.snapshots:
            self._hub.changed(namespace, Change("tools"))

    def _naming(self, seal: Seal) -> Naming:
        settings = self.settings
        return Naming(
            max_length=settings.names.max_length,
            client_prefix_budget=settings.names.client_prefix_budget,
            deadline=settings.calls.deadline,
            page_size=settings.catalogue.page_size,
            ttl=settings.catalogue.ttl,
            server_info=SERVER_INFO,
            cursors=SealedCursors(seal),
        )

    def _lay_path(
        self, policy: Policy, limit: Limit
    ) -> tuple[Callable[[Handler], Handler], Callable[[Refusal], Handler]]:
        """Sets `path`; gives the short one, around an end of its own, and the one that ends in a refusal."""
        settings, shares, calls = self.settings, self.settings.shares, self.settings.calls
        # The order of the path, and why: `trace` and `audit` see everything that happens inside; `limit` charges every
        # call, also one that is refused later; `resolve` makes hidden and unknown alike; `validate` bounds and checks
        # the arguments before policy sees them; `guard` and `deadline` bound what the backend may give and take;
        # `share` is last, so that only calls that would be carried out wait for a place, and no longer than they may.
        begin: tuple[tuple[str, Stage], ...] = (
            ("trace", self.watching.trace),
            ("audit", self._auditing(self.audit)),
            ("limit", limit),
        )
        self.path = compose(
            (
                *begin,
                ("resolve", Resolve(FindAgain(self.catalogue))),
                ("validate", Validate(calls.max_arguments_bytes, calls.max_depth, calls.max_keys, calls.max_string)),
                ("authorize", Authorize(policy.decide)),
                ("approve", Approve(Approvals(self.database), checking(policy.decide))),
                ("guard", ResultGuard(settings.calls.max_result_bytes)),
                ("deadline", Deadline()),
                ("share", Share(Bounds(shares.per_tenant, shares.per_principal, shares.waiting))),
            ),
            Dispatch(),
            "dispatch",
        )
        short = partial(compose, (*begin, ("authorize", Authorize(policy.decide_list))))
        return short, lambda reason: compose(begin, _raising(reason), "edge")

    def _auditing(self, audit: AuditLog) -> Audit:
        settings = self.settings.audit
        strict = settings.durability == "strict"
        return Audit(audit if settings.enabled else None, self._refused, strict=strict)

    def _entry(self, floor: Floor, seal: Seal, rows: SessionRows, bus: Bus, pulse: Pulse) -> Entry:
        """Both eras at one door."""
        self._streams = streams = Streams(bus.worker)
        relay = Relay(bus)
        self._parking = Parking(bus.worker)
        standing = Standing(self.catalogue, self._hub, streams, rows, pulse, relay)
        sessions = Sessions(seal, rows)
        most = self.settings.streams
        caps = Caps(Most(most.per_principal, most.per_tenant, most.per_process))
        return Entry(
            Modern(floor, Listen(self.catalogue, self._hub, caps), Rounds(seal), pulse, self._parking, relay),
            Legacy(floor, sessions, streams, Asking(bus), standing, pulse, self._news, caps),
        )

    def _metrics(self, bus: Bus, bridges: Bridges) -> APIRouter:
        """What can be counted of this worker, and of all that share its port."""
        watching = self.watching

        def gauges() -> list[Family]:
            healths = self._backends.healths()
            return [
                *backend_families(healths, self.catalogue.ages()),
                counted("gatehouse.bridge.peers", "Studios and editors that are connected.", bridges.connected()),
                counted("gatehouse.streams", "Open event streams.", len(self._streams) + len(self._hub)),
                counted("gatehouse.parked.calls", "Calls that wait for their client.", len(self._parking)),
                counted("gatehouse.audit.waiting", "Audit records that are not committed yet.", self.audit.waiting),
            ]

        watching.watch(gauges)
        peers = watching.together(bus, self.settings.server.workers)
        self._tasks.spawn(peers.run())
        self._tasks.spawn(watching.lag.run())
        self._tasks.spawn(watching.send_metrics(asyncio.sleep))
        free = is_loopback(self.settings.server.host)
        return metrics_router(partial(shown, peers), self.identity.authenticate, free=free)

    def _plain_routes(self, *routers: APIRouter) -> FastAPI:
        app = FastAPI(title="Gatehouse", version=VERSION, docs_url=None, redoc_url=None, openapi_url=None)
        app.include_router(health_router(lambda: "draining" if self.draining else None))
        for router in routers:
            app.include_router(router)
        return app

    def _guarded(self, app: ASGIApp) -> Guard:
        server = self.settings.server
        hosts, origins = defaults(server.host, server.port, self.public_url)
        return Guard(app, (*hosts, *server.allowed_hosts), (*origins, *server.allowed_origins), PATHS)

    # ---- what is served ----

    async def apply(self, settings: Settings) -> None:
        """Serve what these settings say from now on, without dropping a call. Raises `LoadError`, changing nothing."""
        swap = await self._backends.change(settings)
        await self.tenants.apply({name: cast("TenantChange", each.stated()) for name, each in settings.tenants.items()})
        for namespace, (backend, _) in swap.made.items():
            if backend.trusted:
                backend.on_change(partial(self._tell_others, namespace))
        await asyncio.gather(*(self.catalogue.add(backend, origin) for backend, origin in swap.made.values()))
        for namespace in swap.dropped:
            self.catalogue.drop(namespace)
        self._endpoints = endpoints(settings)
        self.catalogue.serve(self._endpoints)
        for backend in swap.retired:
            self._tasks.spawn(backend.close())

    def _serves(self, path: str) -> bool:
        """Whether there is such an endpoint."""
        return path in self._endpoints

    def _tell_others(self, namespace: str, change: Change) -> None:
        """A module's change happens in one worker; a remote server tells each of them itself, as an editor does."""
        if (here := HERE.get(None)) is not None and EVERYWHERE in here.meta:
            return
        self._tasks.spawn(self._news.tell("change", {"namespace": namespace, "change": list(change)}))

    def _changed_elsewhere(self, about: Json) -> None:
        namespace, change = about["namespace"], Change(*about["change"])
        backend = self._backends.get(namespace)
        if change.kind == "resource":
            self._hub.changed(namespace, change)
        elif backend is not None:
            self._tasks.spawn(self.catalogue.refresh(backend, change))

    # ---- what operators may ask of the house ----

    def why(self, caller: Caller, tool: str, arguments: Json, approved: bool) -> Json:
        """What would become of that call, and by which policies."""
        explain = Explain(self.tenants.get, self.policies, self.catalogue.everything().tools.get)
        return explain.why(caller, tool, arguments, approved=approved).as_json()

    def seen_tools(self, caller: Caller) -> list[Json]:
        """The tools as they are listed to that caller."""
        view = self.catalogue.view(caller, "/mcp")
        return view.items("tools/list") if view else []

    def _refused(self, call: Call, fault: Fault) -> None:
        """A module may keep records of its own, also of the calls that never reached it."""
        route = call.leads_to
        if route is not None and isinstance(backend := route.backend, LocalBackend):
            backend.refused(call, route, fault)

    # ---- what modules may ask of the house ----

    async def _invoke(self, caller: Caller, tool: str, arguments: Json, meta: Json) -> Json:
        view = self.catalogue.view(caller, "/mcp")
        route = view.tools.get(tool) if view else None
        params: Json = {"name": tool, "arguments": arguments, "_meta": meta}
        given = correlation_id({}, meta) if meta else new_id()
        here = HERE.get(None)
        trace = {"traceparent": here.place.traceparent} if here is not None and here.place is not None else {}
        call = Call(given, caller, "tools/call", params, Client(MODERN, {}), SilentWire(), Record(), route, trace=trace)
        # Only lists come encoded; a tool's result is an object.
        return cast("Json", await self.path(call))

    def _knows(self, caller: Caller, tool: str) -> bool:
        view = self.catalogue.view(caller, "/mcp")
        return view is not None and tool in view.tools

    async def _good(self, caller: Caller) -> bool:
        tenant = self.tenants.get(caller.tenant)
        if tenant is None or tenant.suspended:
            return False
        return await self.identity.good(caller)


class Front:
    """`/mcp` is reached before FastAPI's own routing, which costs as much as a whole call."""

    def __init__(self, door: Door, plain: FastAPI) -> None:
        self._door = door
        self._plain = plain

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            path: str = scope["path"]
            if path == "/mcp" or path.startswith("/mcp/"):
                await self._door(scope, receive, send)
                return
        await self._plain(scope, receive, send)


def _raising(reason: Refusal) -> Handler:
    async def raising(call: Call) -> Result:
        raise reason

    return raising


def _correlate(headers: Mapping[str, str], meta: Any) -> tuple[str, dict[str, str]]:
    known = cast("Json", meta) if isinstance(meta, dict) else None
    trace = trace_context(headers, known)
    return correlation_id(headers, known, trace), trace
