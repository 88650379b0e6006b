"""Builds the MCP endpoint: both protocol eras, request routing, and the Host and Origin check."""

from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.catalogue.catalogue import Catalogue
from gateway.contract import Bus
from gateway.edge.health import HEALTH_PATHS
from gateway.edge.host_origin import HostOriginGuard, default_allow_lists
from gateway.edge.mcp_endpoint import McpEndpoint
from gateway.edge.module_routes import ModuleRoutes
from gateway.protocol.client_requests import ClientRequests
from gateway.protocol.context import EndpointContext
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
from gateway.settings import Settings
from gateway.state.sessions import SessionRows as SessionRows


class McpProtocol:
    """Both protocol eras and the state of connected clients."""

    def __init__(
        self,
        settings: Settings,
        context: EndpointContext,
        seal: TokenSeal,
        rows: SessionRows,
        bus: Bus,
        catalogue: Catalogue,
        subscriptions: Subscriptions,
        worker_events: WorkerEvents,
    ) -> None:
        streams = settings.streams
        self.stream_limits = StreamLimits(
            StreamCaps(principal=streams.per_principal, tenant=streams.per_tenant, process=streams.per_process)
        )
        self.keep_alive = keep_alive = KeepAlive()
        self.streams = EventStreams(bus.worker)
        self.parked_calls = ParkedCalls(bus.worker)
        worker_proxy = WorkerProxy(bus)
        get_streams = GetStreams(catalogue, subscriptions, self.streams, rows, keep_alive, worker_proxy)
        self.router = EraRouter(
            ModernEra(
                context,
                ListenHandler(catalogue, subscriptions, self.stream_limits, context.open_task_id, context.follow_tasks),
                MultiRound(seal),
                keep_alive,
                self.parked_calls,
                worker_proxy,
            ),
            LegacyEra(
                context,
                McpSessions(seal, rows),
                self.streams,
                ClientRequests(bus, seal),
                get_streams,
                keep_alive,
                worker_events,
                self.stream_limits,
                answer_through_store=settings.bus.url is None,
            ),
        )


class AsgiRouter:
    """ASGI app. `/mcp` and modules come before FastAPI's router, which costs as much as a whole call."""

    def __init__(self, endpoint: McpEndpoint, module_routes: ModuleRoutes, plain_routes: ASGIApp) -> None:
        self._endpoint = endpoint
        self._module_routes = module_routes
        self._plain_routes = plain_routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            path: str = scope["path"]
            if path == "/mcp" or path.startswith("/mcp/"):
                await self._endpoint(scope, receive, send)
                return
        await (self._module_routes.find(scope) or self._plain_routes)(scope, receive, send)


def guard_host_origin(app: ASGIApp, settings: Settings, public_url: str) -> HostOriginGuard:
    server = settings.server
    hosts, origins = default_allow_lists(server.host, server.port, public_url)
    return HostOriginGuard(app, (*hosts, *server.allowed_hosts), (*origins, *server.allowed_origins), HEALTH_PATHS)
