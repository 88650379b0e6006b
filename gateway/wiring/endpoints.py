"""The doors: both eras of the protocol at one endpoint, beside the plain routes, behind one guard.

Addresses that several pieces give out.
"""

from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.catalogue.catalogue import Catalogue
from gateway.contract import Bus
from gateway.edge.host_origin import Guard, defaults
from gateway.edge.mcp_endpoint import Door
from gateway.edge.ops_routes import PATHS
from gateway.protocol.client_requests import Asking
from gateway.protocol.context import Floor
from gateway.protocol.era_router import Entry
from gateway.protocol.event_streams import Streams
from gateway.protocol.get_stream import Standing
from gateway.protocol.legacy import Legacy
from gateway.protocol.modern import Modern
from gateway.protocol.multi_round import Parking, Rounds
from gateway.protocol.sealed_tokens import Seal
from gateway.protocol.sessions import Sessions
from gateway.protocol.stream_limits import Caps, Most
from gateway.protocol.subscriptions import Hub, Listen
from gateway.protocol.wire import Pulse
from gateway.protocol.worker_events import News
from gateway.protocol.worker_proxy import Relay
from gateway.settings import Settings, http_address
from gateway.state.sessions import Sessions as SessionRows


class Eras:
    """Both eras, and what they keep while a client is connected."""

    def __init__(
        self,
        settings: Settings,
        floor: Floor,
        seal: Seal,
        rows: SessionRows,
        bus: Bus,
        catalogue: Catalogue,
        hub: Hub,
        news: News,
    ) -> None:
        most = settings.streams
        self.caps = Caps(Most(most.per_principal, most.per_tenant, most.per_process))
        self.pulse = pulse = Pulse()
        self.streams = Streams(bus.worker)
        self.parking = Parking(bus.worker)
        relay = Relay(bus)
        standing = Standing(catalogue, hub, self.streams, rows, pulse, relay)
        self.entry = Entry(
            Modern(floor, Listen(catalogue, hub, self.caps), Rounds(seal), pulse, self.parking, relay),
            Legacy(
                floor,
                Sessions(seal, rows),
                self.streams,
                Asking(bus, seal),
                standing,
                pulse,
                news,
                self.caps,
                by_rows=settings.bus.url is None,
            ),
        )


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


def guarded(app: ASGIApp, settings: Settings, public_url: str) -> Guard:
    server = settings.server
    hosts, origins = defaults(server.host, server.port, public_url)
    return Guard(app, (*hosts, *server.allowed_hosts), (*origins, *server.allowed_origins), PATHS)


def operators_url(settings: Settings, public_url: str) -> str:
    """Where operators come to, for a gateway whose public address is this: a port of their own, where there is one."""
    server = settings.server
    if server.ops_port is None:
        return public_url
    return server.ops_public_url or http_address(server.host, server.ops_port)
