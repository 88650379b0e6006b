"""The composition root: settings become objects, objects become one ASGI app."""

import asyncio
from contextlib import AsyncExitStack
from functools import partial
from importlib.metadata import version
from typing import Final, cast

from fastapi import APIRouter, FastAPI
from starlette.types import ASGIApp

from gateway.catalogue.catalogue import Catalogue, McpEndpointConfig
from gateway.contract import Json
from gateway.edge.api.authorization import AdminAuthorization
from gateway.edge.api.backends import backends_router
from gateway.edge.api.calls import calls_router
from gateway.edge.api.policy import policy_router
from gateway.edge.api.usage import usage_router
from gateway.edge.correlation import correlate
from gateway.edge.error_response import answer_unserved
from gateway.edge.fast_path import FastPath
from gateway.edge.godot_bridge import godot_bridge
from gateway.edge.mcp_endpoint import McpEndpoint
from gateway.edge.ops_routes import for_operators, health_router
from gateway.edge.studio_bridge import bridge_router
from gateway.policy.decisions import Authorizer
from gateway.protocol.context import EndpointContext
from gateway.protocol.sealed_tokens import TokenSeal
from gateway.protocol.subscriptions import Subscriptions
from gateway.protocol.worker_events import WorkerEvents
from gateway.settings import Settings
from gateway.stages.audit import Audit
from gateway.stages.share import Share, ShareBounds
from gateway.state.approvals import Approvals
from gateway.state.catalogue_rows import CatalogueRows
from gateway.state.secrets import load_secret
from gateway.state.tenants import TenantChange
from gateway.telemetry.log import LogLines
from gateway.upstream.bridge import Bridges
from gateway.upstream.host import HostServices
from gateway.wiring.backends import ServedBackends, endpoints, refused
from gateway.wiring.call_path import CallPaths, lay
from gateway.wiring.catalogue import DatabaseListingStore, ListChanges, naming
from gateway.wiring.console import ConsoleDependencies, open_console
from gateway.wiring.endpoints import McpProtocol, RequestRouter, guarded
from gateway.wiring.host_services import BackgroundTasks, InternalCalls
from gateway.wiring.identity import Identity
from gateway.wiring.limits import limit_stage, shared_windows
from gateway.wiring.operator_api import (
    BackendHealthReporter,
    OperatorCallHistory,
    OperatorPolicyExplainer,
    UsageReporter,
)
from gateway.wiring.policy import read_policies
from gateway.wiring.storage import Storage
from gateway.wiring.telemetry import TelemetryWiring, gauges, metrics

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
        self._tasks = BackgroundTasks()
        self._opened = asyncio.Event()
        self._endpoints: dict[str, McpEndpointConfig] = {}
        self.console_url: str | None = None

    @classmethod
    async def open(cls, settings: Settings, lines: LogLines, port: int | None = None) -> "Gatehouse":
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
        self._eras.parking.close()
        await self._bridges.leave()

    async def close(self) -> None:
        """Finish what is under way, and write down what is left."""
        self.draining = True
        await self._exit.aclose()

    # ---- building ----

    async def _build(self, lines: LogLines) -> None:
        settings, leave = self.settings, self._exit.push_async_callback
        self.ground = ground = await Storage.open(settings, leave)
        self.database, self.tenants, self.audit, self.stores = (
            ground.database, ground.tenants, ground.audit, ground.stores
        )  # fmt: skip
        windows = shared_windows(ground.bus, settings.bus.prefix)
        self.identity = identity = await Identity.open(
            settings, ground.database, self.public_url, self._serves, windows
        )
        leave(identity.close)
        self.keys = identity.keys
        self._seal = seal = TokenSeal([load_secret(settings.data_dir / "secrets", "seal")])

        self.policies = await read_policies(settings)
        policy = Authorizer(self.tenants.get, self.policies)
        lists = CatalogueRows(ground.database)
        memory = DatabaseListingStore(lists, settings.catalogue.pins)
        shown = naming(settings, seal, SERVER_INFO)
        self.catalogue = Catalogue(policy, shown, settings.catalogue.keep_stale, memory, ground.bus)
        await memory.follow(lambda: self._tasks.spawn(self.catalogue.repin()))
        self.watching = TelemetryWiring(settings, VERSION, lines)
        leave(self.watching.close)
        self.watching.audited(self.audit)
        self._limit = limit_stage(settings.limits, windows)
        self._share = Share(
            ShareBounds(settings.shares.per_tenant, settings.shares.per_principal, settings.shares.waiting)
        )
        self._paths = self._lay_paths(policy)
        self.advice = OperatorPolicyExplainer(self.tenants.get, self.policies, self.catalogue)
        self.inside = InternalCalls(self.catalogue, self._paths.call, self.tenants.get, identity.good)
        self.looking = look = OperatorCallHistory(settings, identity.owner, self._paths.under_way)

        self._bridges = bridges = Bridges(ground.bus)
        self._backends = ServedBackends(settings, self._house(bridges), SERVER_INFO)
        self._hub = Subscriptions(self._backends.get)
        self._news = WorkerEvents(ground.bus)
        self._changes = ListChanges(self.catalogue, self._hub, self._news, self._backends.get, self._tasks.spawn)
        self._eras = McpProtocol(
            settings, self._floor(), seal, ground.sessions, ground.bus, self.catalogue, self._hub, self._news
        )
        ending = identity.watch(self.inside.good, self._tasks.spawn)
        await identity.credentials.on_revoke(ending)
        self.tenants.on_change(ending)
        self.watching.watch(gauges(self._backends, self.catalogue, bridges, self._eras, self._hub, self.audit))
        self._usage = UsageReporter(self._limit, self._share, self._eras.caps, ground.bus, windows)
        operators = AdminAuthorization(
            identity.admit(self.tenants.get), identity.turnstile.gate("api", settings.limits.api)
        )
        self._healths = BackendHealthReporter(self.catalogue, lists, self._backends.get)
        self._open_doors(
            bridges,
            policy_router(operators, self.advice.why, self.advice.seen_tools, look.reach),
            backends_router(operators, self._healths.report),
            calls_router(operators, look.reach, look.calls.find, look.calls.traffic, look.under_way),
            usage_router(operators, self._usage.report),
        )
        self._begin()
        leave(self._backends.close)
        leave(self._tasks.stop)
        await self.apply(settings)
        self._opened.set()

    def _begin(self) -> None:
        """What goes on beside the calls."""
        for work in (
            self._eras.pulse.run(),
            self.catalogue.keep_fresh(self.settings.catalogue.ttl),
            self.catalogue.hear_replicas(),
            self.policies.watch(),
            self._news.run(),
            self._bridges.run(),
            self._usage.run(),
        ):
            self._tasks.spawn(work)
        self.policies.on_change(self._changes.tell_of_policies)

    def _lay_paths(self, policy: Authorizer) -> CallPaths:
        settings, ground = self.settings, self.ground
        kept = self.audit if settings.audit.enabled else None
        return lay(
            settings,
            self.catalogue,
            policy,
            Approvals(ground.database),
            self.watching.trace,
            Audit(kept, refused, strict=settings.audit.durability == "strict"),
            self._limit,
            self._share,
        )

    def _house(self, bridges: Bridges) -> HostServices:
        """What modules may ask for."""
        return HostServices(
            stores=self.stores,
            files=self.settings.files_dir,
            bus=self.ground.bus,
            http=self.ground.http,
            loopback=self.identity.local,
            bridge=bridges.for_backend,
            invoke=self.inside.invoke,
            has_tool=self.inside.knows,
            is_authorized=self.inside.good,
            spawn=self._tasks.spawn,
            ready=self._opened.wait,
            record_work=self.watching.spans.worked,
        )

    def _floor(self) -> EndpointContext:
        challenge = self.identity.challenge
        return EndpointContext(
            catalogue=self.catalogue,
            path=self._paths.call,
            lists=self._paths.short,
            refused=self._paths.refused,
            charged=self._paths.charged,
            correlate=correlate,
            server_info=SERVER_INFO,
            challenge=challenge.insufficient if challenge else None,
        )

    def _open_doors(self, bridges: Bridges, *routers: APIRouter) -> None:
        """Sets `asgi` and `lane`, and the plain routes: `plain`, and `ops`, which where operators have a port of their
        own has what is theirs alone."""
        identity, authenticate, tenures = self.identity, self.identity.authenticate, self.identity.tenures
        admit = identity.admit(self.tenants.get)
        health = health_router(lambda: "draining" if self.draining else None)
        told = metrics(self.settings, self.watching, self.ground.bus, admit, self._tasks.spawn, free=identity.local)
        self.plain = _plain(health, bridge_router(bridges, admit, tenures), *identity.routers)
        theirs = self.plain if self.settings.server.ops_port is None else _plain(health)
        for router in (*routers, told):
            theirs.include_router(router)
        self.ops = for_operators(theirs)
        self.plain.router.routes.append(godot_bridge(bridges, admit, tenures))
        max_body = self.settings.server.max_body_bytes
        serve, challenge = self._eras.entry.serve, identity.unauthenticated
        door = McpEndpoint(authenticate, serve, max_body, challenge, tenures, admit, identity.known)
        self.asgi = guard = guarded(RequestRouter(door, self.plain), self.settings, self.public_url)
        self.lane = FastPath(door, guard.host_allowed)
        if self.settings.console.enabled:
            console = open_console(self.settings, self.public_url, guard.host_allowed, self._asked())
            theirs.include_router(console.router())
            self.console_url = console.url

    def _asked(self) -> ConsoleDependencies:
        """What the operator's page may ask of the house."""
        return ConsoleDependencies(
            looking=self.looking,
            identity=self.identity,
            catalogue=self.catalogue,
            backends=self._healths.report,
            why=self.advice.why,
            tenants=lambda: sorted(tenant.name for tenant in self.tenants.all()),
            endpoints=lambda: list(self._endpoints),
            good=self.inside.good,
            seal=self._seal,
            version=VERSION,
        )

    # ---- what is served ----

    async def apply(self, settings: Settings) -> None:
        """Serve what these settings say from now on, without dropping a call. Raises `LoadError`, changing nothing."""
        swap = await self._backends.change(settings)
        await self.tenants.apply({name: cast("TenantChange", each.stated()) for name, each in settings.tenants.items()})
        for namespace, (backend, _) in swap.made.items():
            if backend.trusted:
                backend.on_change(partial(self._changes.tell_others, namespace))
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


def _plain(*routers: APIRouter) -> FastAPI:
    app = FastAPI(title="Gatehouse", version=VERSION, docs_url=None, redoc_url=None, openapi_url=None)
    answer_unserved(app)
    for router in routers:
        app.include_router(router)
    return app
