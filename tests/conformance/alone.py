"""The fixture under the SDK's own HTTP server: the reference that the gateway is held to.

`python -m tests.conformance.alone PORT` serves it at http://127.0.0.1:PORT/mcp.
"""

import sys
from itertools import count
from typing import Final

import uvicorn
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.streamable_http import EventCallback, EventId, EventMessage, EventStore, StreamId
from mcp_types import JSONRPCMessage
from starlette.applications import Starlette

from tests.conformance.backend import build

_RETRY_MS: Final = 500


class Events(EventStore):
    """Every event of every stream, for as long as the process lives."""

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
            # A priming event has no message and is not repeated.
            if owner == stream and int(event_id) > int(last_event_id) and message is not None:
                await send_callback(EventMessage(message, event_id))
        return stream


def app() -> Starlette:
    server = build()
    server.middleware.append(RequestStateBoundary(RequestStateSecurity.ephemeral(), default_audience=server.name))
    return server.streamable_http_app(event_store=Events(), retry_interval=_RETRY_MS)


if __name__ == "__main__":
    # h11, because httptools keeps the blanks around a header's value and the SDK does not strip them.
    uvicorn.run(app(), host="127.0.0.1", port=int(sys.argv[1]), http="h11", log_level="warning")
