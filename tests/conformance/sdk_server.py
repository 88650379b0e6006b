"""The fixture under the SDK's HTTP server: the reference for the gateway's results.

`python -m tests.conformance.sdk_server PORT [modern | handshake]` serves it at http://127.0.0.1:PORT/mcp, in both
eras or only in the given one.
"""

import json
import sys
from itertools import count
from typing import Final

import uvicorn
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.streamable_http import EventCallback, EventId, EventMessage, EventStore, StreamId
from mcp_types import JSONRPCMessage
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from starlette.applications import Starlette
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.conformance.backend import build

_RETRY_MS: Final = 500


class InMemoryEventStore(EventStore):
    """Stores the events of all streams in memory."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._events: dict[EventId, tuple[StreamId, JSONRPCMessage | None]] = {}

    async def store_event(self, stream_id: StreamId, message: JSONRPCMessage | None) -> EventId:
        event_id = str(next(self._numbers))
        self._events[event_id] = (stream_id, message)
        return event_id

    async def replay_events_after(self, last_event_id: EventId, send_callback: EventCallback) -> StreamId | None:
        if last_event_id not in self._events:
            return None
        stream, _ = self._events[last_event_id]
        for event_id, (owner, message) in list(self._events.items()):
            # A priming event has no message and is not replayed.
            if owner == stream and int(event_id) > int(last_event_id) and message is not None:
                await send_callback(EventMessage(message, event_id))
        return stream


def app() -> Starlette:
    server = build()
    server.middleware.append(RequestStateBoundary(RequestStateSecurity.ephemeral(), default_audience=server.name))
    return server.streamable_http_app(event_store=InMemoryEventStore(), retry_interval=_RETRY_MS)


class SingleEraApp:
    """Rejects requests of the other era like a server that does not know that era."""

    def __init__(self, app: ASGIApp, era: str) -> None:
        self._app = app
        self._modern = era == "modern"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            version = dict(scope["headers"]).get(b"mcp-protocol-version", b"").decode()
            other = ("", *HANDSHAKE_PROTOCOL_VERSIONS) if self._modern else MODERN_PROTOCOL_VERSIONS
            if version in other:
                await self._reject(version, send)
                return
        await self._app(scope, receive, send)

    async def _reject(self, version: str, send: Send) -> None:
        error: dict[str, object] = {"code": -32000, "message": "Bad Request: Server not initialized"}
        if self._modern:
            data = {"supported": list(MODERN_PROTOCOL_VERSIONS), "requested": version}
            error = {"code": -32022, "message": "Unsupported protocol version", "data": data}
        body = json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()
        kind = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 400, "headers": kind})
        await send({"type": "http.response.body", "body": body})


if __name__ == "__main__":
    served: ASGIApp = SingleEraApp(app(), sys.argv[2]) if len(sys.argv) > 2 else app()
    # h11, because httptools keeps the white space around header values and the SDK does not strip it.
    uvicorn.run(served, host="127.0.0.1", port=int(sys.argv[1]), http="h11", log_level="warning")
