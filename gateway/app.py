"""The composition root: builds one gateway from its settings.

`Gateway.open` is called by `gateway.runner`, by commands that need a gateway without a socket, and by tests. The parts
are built by the functions of `gateway.wiring`.
"""

import asyncio
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from starlette.types import ASGIApp

from gateway.approvals.mcp_tools import NAMESPACE, ApprovalTools
from gateway.catalogue.catalogue import Catalogue, McpEndpointConfig
from gateway.catalogue.search.meaning import MeaningRanker
from gateway.contract import Json
from gateway.contract.caller import ADMIN, APPROVE
from gateway.contract.distribution import installed_version
from gateway.edge.correlation import correlate
from gateway.edge.deferred_app import DeferredApp
from gateway.edge.health import HealthProbes, for_operators
from gateway.edge.mcp_endpoint import Authenticate, McpEndpoint, RequestRouter
from gateway.edge.module_routes import ModuleRoutes
from gateway.policy.decisions import Authorizer
from gateway.protocol.context import EndpointContext
from gateway.protocol.sealed_tokens import TokenSeal
from gateway.protocol.subscriptions import Subscriptions
from gateway.protocol.tool_search import ToolSearch, tool_access
from gateway.protocol.worker_events import WorkerEvents
from gateway.settings import Settings
from gateway.stages.audit import Audit, Intent
from gateway.stages.share import Share, ShareBounds
from gateway.state.approvals import Approvals
from gateway.state.catalogue_rows import CatalogueRows
from gateway.state.secrets import load_secret
from gateway.state.tenants import TenantChange
from gateway.telemetry.log import LogLines
from gateway.upstream.host import HostServices
from gateway.upstream.peers.service import PeerService
from gateway.upstream.remote import RemoteBackend
from gateway.wiring.accounts import AccountsWiring
from gateway.wiring.anchor_webhook import AnchorWebhook
from gateway.wiring.approvals import ApprovalWiring
from gateway.wiring.backends import ServedBackends, endpoints, report_refusal
from gateway.wiring.call_path import CallPaths, build_call_paths
from gateway.wiring.catalogue import DatabaseListingStore, ListChanges, list_format
from gateway.wiring.endpoints import AsgiRouter, McpProtocol, guard_host_origin
from gateway.wiring.host_services import BackgroundTasks, InternalCalls
from gateway.wiring.identity import Identity
from gateway.wiring.limits import limit_stage, shared_windows
from gateway.wiring.operator_api import (
    BackendHealthReporter,
    OperatorCallHistory,
    OperatorPolicyExplainer,
    UsageReporter,
)
from gateway.wiring.outbound import outbound_route
from gateway.wiring.policy import open_policies
from gateway.wiring.sealed_cookies import SealedCookies
from gateway.wiring.shapes import backend_shapes
from gateway.wiring.storage import Storage
from gateway.wiring.tasks import Tasks
from gateway.wiring.telemetry import TelemetryWiring, build_gauges, start_metrics

if TYPE_CHECKING:
    from fastapi import APIRouter, FastAPI

    from gateway.state.redis_windows import RedisWindows
    from gateway.wiring.console import ConsoleDependencies

VERSION: Final = installed_version()
SERVER_INFO: Final[Json] = {"name": "gatehouse", "title": "Gatehouse", "version": VERSION}
_ROUTE_MODULES: Final = (
    "gateway.accounts.routes",
    "gateway.auth.server.authlib_core",
    "gateway.auth.server.authorization_server",
    "gateway.edge.api.calls",
    "gateway.edge.oauth_routes",
    "gateway.wiring.console",
)
"""What the plain routes need and nothing else does (`DeferredApp`)."""


class Gateway:
    """One running gateway. Create it with `open`, serve `asgi`, change what it serves with `apply`."""

    asgi: ASGIApp

    def __init__(self, settings: Settings, public_url: str) -> None:
        self.settings = settings
        self.public_url = public_url
        self.draining = False
        self._exit_stack = AsyncExitStack()
        self._tasks = BackgroundTasks()
        self._ready = asyncio.Event()
        self._endpoints: dict[str, McpEndpointConfig] = {}
        self.console_url: str | None = None

    @classmethod
    async def open(cls, settings: Settings, log_lines: LogLines, port: int | None = None) -> "Gateway":
        """Build and open a gateway. `port` is the bound port, if the settings say 0."""
        gateway = cls(settings, settings.server.public_url_at(settings.server.port if port is None else port))
        try:
            await gateway._build(log_lines)
        except BaseException:
            await gateway.close()
            raise
        return gateway

    def start_draining(self) -> None:
        """Fail readiness from now on."""
        self.draining = True

    async def drain(self) -> None:
        """End the open streams, and the calls that wait for their clients."""
        self.draining = True
        self._subscriptions.close()
        self._protocol.parked_calls.close()
        await self._peers.drain()
        self.module_routes.close_sockets()

    async def close(self) -> None:
        """Close everything that was opened, in reverse order; queued audit records are written first."""
        self.draining = True
        await self._exit_stack.aclose()

    # ---- building: each step uses only what the steps above it made ----

    async def _build(self, log_lines: LogLines) -> None:
        settings, on_close = self.settings, self._exit_stack.push_async_callback
        self.storage = storage = await Storage.open(settings, on_close, outbound_route(settings))
        self.database, self.tenants = storage.database, storage.tenants
        self.audit, self.stores = storage.audit, storage.stores
        self._seal = TokenSeal([load_secret(settings.data_dir / "secrets", "seal")])
        windows = shared_windows(storage.bus, settings.bus.prefix)
        self.identity = await self._open_identity(windows)
        self.keys = self.identity.keys
        self.policies = await open_policies(settings)
        self._authorizer = authorizer = Authorizer(self.tenants.get, self.policies)
        self.approvals = ApprovalWiring.build(
            settings, storage.database, storage.audit, settings.server.operators_url(self.public_url), on_close
        )
        self._catalogue_rows = CatalogueRows(storage.database)
        self.catalogue = await self._open_catalogue(authorizer)
        self._tool_search = self._build_tool_search(authorizer)
        self.telemetry = self._open_telemetry(log_lines)
        self._limit = limit_stage(settings.limits, windows)
        self._share = Share(
            ShareBounds(settings.shares.per_tenant, settings.shares.per_principal, settings.shares.waiting)
        )
        self._call_paths = self._build_call_paths(authorizer)
        self.internal_calls = InternalCalls(
            self.catalogue, self._call_paths.full, self.tenants.get, self.identity.is_valid
        )
        self._peers = PeerService(storage.bus)
        self.accounts = self._open_accounts()
        self._backends = ServedBackends(
            settings, self._host_services(), SERVER_INFO, self.accounts.open_backend, outbound_route(settings)
        )
        self._protocol = self._build_protocol(authorizer)
        self._expire_streams_on_revocation()
        self._build_operator_services(windows)
        self._build_routes()
        self._start_background_tasks()
        on_close(self._backends.close)
        on_close(self._tasks.cancel_all)
        on_close(self.tasks.close)
        await self.apply(settings)
        self._ready.set()

    async def _open_identity(self, windows: "RedisWindows | None") -> Identity:
        identity = await Identity.open(self.settings, self.storage.database, self.public_url, self._is_served, windows)
        self._exit_stack.push_async_callback(identity.close)
        return identity

    def _open_accounts(self) -> AccountsWiring:
        accounts = AccountsWiring(
            self.settings,
            self.storage.database,
            self.identity,
            SealedCookies(self._seal),
            public_url=self.public_url,
            worker=self.storage.bus.worker,
        )
        self._exit_stack.push_async_callback(accounts.close)
        return accounts

    async def _open_catalogue(self, authorizer: Authorizer) -> Catalogue:
        settings = self.settings
        store = DatabaseListingStore(self._catalogue_rows, settings.catalogue.pins)
        catalogue = Catalogue(
            authorizer,
            list_format(settings, self._seal, SERVER_INFO),
            settings.catalogue.keep_stale,
            store,
            self.storage.bus,
        )
        await store.follow(lambda: self._tasks.spawn(catalogue.refresh_pins()))
        return catalogue

    def _build_tool_search(self, authorizer: Authorizer) -> ToolSearch:
        ranker = MeaningRanker.create()
        if ranker is not None:
            self._exit_stack.callback(ranker.close)
        return ToolSearch(self.catalogue, tool_access(authorizer.preview), ranker)

    def _open_telemetry(self, log_lines: LogLines) -> TelemetryWiring:
        telemetry = TelemetryWiring(self.settings, VERSION, log_lines)
        self._exit_stack.push_async_callback(telemetry.close)
        telemetry.export_audit(self.audit)
        if (url := self.settings.audit.anchor_url) is not None:
            webhook = AnchorWebhook(url, self.audit, self._tasks.spawn, outbound_route(self.settings))
            self._exit_stack.push_async_callback(webhook.close)
        return telemetry

    def _build_call_paths(self, authorizer: Authorizer) -> CallPaths:
        audit = self.settings.audit
        has_intents = audit.enabled and audit.durability != "grouped"
        return build_call_paths(
            self.settings,
            self.catalogue,
            authorizer,
            Approvals(self.storage.database),
            self.telemetry.trace,
            Audit(self.audit if audit.enabled else None, report_refusal, strict=audit.durability == "strict"),
            Intent(self.audit) if has_intents else None,
            self._limit,
            self._share,
            self.approvals.held_calls,
        )

    def _host_services(self) -> HostServices:
        return HostServices(
            stores=self.stores,
            files=self.settings.files_dir.absolute(),
            bus=self.storage.bus,
            http=self.storage.http,
            loopback=self.identity.local,
            peers=self._peers.for_backend,
            invoke=self.internal_calls.invoke,
            has_tool=self.internal_calls.has_tool,
            find_tool=self.internal_calls.find_tool,
            is_authorized=self.internal_calls.is_authorized,
            spawn=self._tasks.spawn,
            ready=self._ready.wait,
            record_work=self.telemetry.spans.record_work,
        )

    def _build_tasks(self, authorizer: Authorizer) -> Tasks:
        storage = self.storage
        tasks = Tasks(
            self.settings,
            storage.database,
            self._seal,
            storage.bus,
            self.catalogue,
            authorizer,
            self._call_paths,
            self._subscriptions,
            self._worker_events,
            self.internal_calls.is_authorized,
        )
        self.identity.credentials.on_revoke(tasks.supervisor.recheck_owners)
        self.tenants.on_change(tasks.supervisor.recheck_owners)
        return tasks

    def _build_protocol(self, authorizer: Authorizer) -> McpProtocol:
        storage, challenge = self.storage, self.identity.challenge
        self._subscriptions = Subscriptions(self._backends.get)
        self._worker_events = WorkerEvents(storage.bus)
        self.tasks = tasks = self._build_tasks(authorizer)
        self._list_changes = ListChanges(
            self.catalogue, self._subscriptions, self._worker_events, self._backends.get, self._tasks.spawn
        )
        context = EndpointContext(
            catalogue=self.catalogue,
            call_handler=self._call_paths.full,
            make_local_handler=self._call_paths.short,
            make_refusal_handler=self._call_paths.refusal,
            charge_handler=self._call_paths.charge_only,
            correlate=correlate,
            server_info=SERVER_INFO,
            tool_search=self._tool_search,
            tool_handler=tasks.call_handler,
            task_handler=tasks.request_handler,
            open_task_id=tasks.open_task_id,
            follow_tasks=tasks.follow,
            build_challenge=challenge.insufficient if challenge else None,
        )
        return McpProtocol(
            self.settings,
            context,
            self._seal,
            storage.sessions,
            storage.bus,
            self.catalogue,
            self._subscriptions,
            self._worker_events,
        )

    def _expire_streams_on_revocation(self) -> None:
        review = self.identity.expire_streams(self.internal_calls.is_authorized, self._tasks.spawn)
        self.identity.credentials.on_revoke(review)
        self.tenants.on_change(review)

    def _build_operator_services(self, windows: "RedisWindows | None") -> None:
        self.telemetry.add_gauges(
            build_gauges(self._backends, self.catalogue, self._peers, self._protocol, self._subscriptions, self.audit)
        )
        self.policy_explainer = OperatorPolicyExplainer(self.tenants.get, self.policies, self.catalogue)
        self.call_history = OperatorCallHistory(self.settings, self.identity.owner, self._call_paths.running_calls)
        self._usage = UsageReporter(self._limit, self._share, self._protocol.stream_limits, self.storage.bus, windows)
        self._backend_health = BackendHealthReporter(self.catalogue, self._catalogue_rows, self._backends.get)

    def _unready_reason(self) -> str | None:
        if self.draining:
            return "draining"
        return "the audit log cannot be written; check the disk or the database" if self.audit.is_failing else None

    def _build_routes(self) -> None:
        """Set `router`, `asgi`, `plain_routes` and `operator_app`.

        Without `ops_port` the operators' routes are part of `plain_routes`; otherwise `operator_app` alone has them.
        """
        settings, identity, stream_expiry = self.settings, self.identity, self.identity.stream_expiry
        authenticate_active = identity.authenticate_active(self.tenants.get)
        self.module_routes = ModuleRoutes(authenticate_active, stream_expiry)
        self.plain_routes = DeferredApp(self._build_plain_routes, *_ROUTE_MODULES)
        operator_routes = (
            self.plain_routes
            if settings.server.ops_port is None
            else DeferredApp(lambda: _fastapi(*self._operator_routers()), *_ROUTE_MODULES)
        )
        self.operator_app = for_operators(HealthProbes(operator_routes, self._unready_reason))
        endpoint = McpEndpoint(
            identity.authenticate,
            self._protocol.router.serve,
            settings.server.max_body_bytes,
            identity.unauthenticated,
            stream_expiry,
            authenticate_active,
            identity.cached_caller,
        )
        app = AsgiRouter(endpoint, self.module_routes, HealthProbes(self.plain_routes, self._unready_reason))
        self.asgi = self._guard = guard_host_origin(app, settings, self.public_url)
        self.router = RequestRouter(endpoint, self._guard)
        if settings.console.enabled:
            self.console_url = f"{settings.server.operators_url(self.public_url)}/console"
        self._render_metrics = start_metrics(settings, self.telemetry, self.storage.bus, self._tasks.spawn)

    def _build_plain_routes(self) -> "FastAPI":
        operators = self._operator_routers() if self.settings.server.ops_port is None else []
        users = self.accounts.routers(
            self.identity.authenticate_active(self.tenants.get),
            self._authorizer.has_backend,
            self.internal_calls.is_authorized,
        )
        return _fastapi(*self.identity.routers(), *users, *operators)

    def _operator_routers(self) -> "list[APIRouter]":
        # Imported here: see `DeferredApp`.
        from gateway.edge.api.authorization import AdminAuthorization
        from gateway.edge.api.backends import backends_router
        from gateway.edge.api.calls import calls_router
        from gateway.edge.api.policy import policy_router
        from gateway.edge.api.usage import usage_router
        from gateway.edge.ops_routes import metrics_router
        from gateway.wiring.console import open_console

        identity, history, explainer = self.identity, self.call_history, self.policy_explainer
        authenticate_active = identity.authenticate_active(self.tenants.get)
        operators = AdminAuthorization(
            authenticate_active, identity.ip_rate_limiter.gate("api", self.settings.limits.api)
        )
        routers = [
            policy_router(operators, explainer.explain, explainer.visible_tools, history.visible_tenant),
            backends_router(operators, self._backend_health.report),
            calls_router(operators, history.visible_tenant, history.calls.find, history.calls.traffic, history.running),
            usage_router(operators, self._usage.report),
            self._approvals_router(authenticate_active),
            metrics_router(self._render_metrics, authenticate_active, public=identity.local),
        ]
        if self.settings.console.enabled:
            host_allowed, dependencies = self._guard.host_allowed, self._console_dependencies()
            routers.append(open_console(self.settings, self.public_url, host_allowed, dependencies).router())
        return routers

    def _approvals_router(self, authenticate: Authenticate) -> "APIRouter":
        from gateway.edge.api.approvals import approvals_router
        from gateway.edge.api.authorization import AdminAuthorization

        gate = self.identity.ip_rate_limiter.gate("approvals", self.settings.limits.api)
        viewers = AdminAuthorization(authenticate, gate, scopes=(APPROVE, ADMIN))
        return approvals_router(
            viewers,
            self.approvals.review,
            self._authorizer.is_approver,
            self.approvals.deliveries.dead_letters,
            self.approvals.retry_delivery,
        )

    def _console_dependencies(self) -> "ConsoleDependencies":
        from gateway.wiring.console import ConsoleDependencies

        return ConsoleDependencies(
            call_history=self.call_history,
            identity=self.identity,
            catalogue=self.catalogue,
            backends=self._backend_health.report,
            explain=self.policy_explainer.explain,
            tenants=lambda: sorted(tenant.name for tenant in self.tenants.all()),
            endpoints=lambda: list(self._endpoints),
            is_authorized=self.internal_calls.is_authorized,
            seal=self._seal,
            version=VERSION,
            approvals=self.approvals.review,
            is_approver=self._authorizer.is_approver,
        )

    def _start_background_tasks(self) -> None:
        for work in (
            self._protocol.keep_alive.run(),
            self.catalogue.refresh_periodically(self.settings.catalogue.ttl),
            self.catalogue.follow_replicas(),
            self.policies.watch(),
            self._worker_events.run(),
            self._peers.run(),
            self._usage.run(),
            self.accounts.backends.run(),
            self.tasks.supervisor.run(),
            self.approvals.notifier.run(),
            self.approvals.prune_periodically(),
        ):
            self._tasks.spawn(work)
        self.policies.on_change(self._list_changes.publish_policy_change)
        self.policies.on_change(lambda: self._tasks.spawn(self._serve_approval_tools()))

    # ---- applying settings ----

    async def apply(self, settings: Settings) -> None:
        """Serve the backends and tenants of these settings without dropping a call.

        Raises `LoadError` and changes nothing if a backend cannot be loaded.
        """
        swap = await self._backends.apply(settings)
        await self.tenants.apply(
            {name: cast("TenantChange", each.explicit_values()) for name, each in settings.tenants.items()}
        )
        for namespace, (backend, _) in swap.added.items():
            if backend.trusted:
                backend.on_change(partial(self._list_changes.publish, namespace))
            if isinstance(backend, RemoteBackend) and self.settings.catalogue.pins == "deny":
                backend.guard_definitions(self.catalogue.guard(namespace))
        await asyncio.gather(*(self.catalogue.add(backend, origin) for backend, origin in swap.added.values()))
        await self.identity.set_module_scopes(self._backends.scopes())
        self.module_routes.replace(self._backends.routes())
        self.approvals.apply(settings)
        await self._serve_approval_tools()
        for namespace in swap.removed:
            self.catalogue.drop(namespace)
            await self._peers.end_backend(namespace)
        self.accounts.keep_only(settings)
        self._endpoints = endpoints(settings)
        self.catalogue.set_endpoints(self._endpoints, backend_shapes(settings))
        for backend in swap.retired:
            self._tasks.spawn(backend.close())

    async def _serve_approval_tools(self) -> None:
        """Serve the namespace `approvals` while a policy requires approval, unless a backend has this name."""
        loaded = self.policies.current
        wanted = any(rules.approver_groups for rules in (loaded.default, *loaded.tenants.values()))
        served = isinstance(found := self.catalogue.backend(NAMESPACE), ApprovalTools)
        if wanted and found is None:
            await self.catalogue.add(ApprovalTools(self.approvals.review, self.approvals.link))
        elif served and not wanted:
            self.catalogue.drop(NAMESPACE)

    def _is_served(self, path: str) -> bool:
        """Whether an MCP endpoint with this path exists."""
        return path in self._endpoints


def _fastapi(*routers: "APIRouter") -> "FastAPI":
    from fastapi import FastAPI

    from gateway.edge.not_found import handle_unserved

    app = FastAPI(title="Gatehouse", version=VERSION, docs_url=None, redoc_url=None, openapi_url=None)
    handle_unserved(app)
    for router in routers:
        app.include_router(router)
    return app
