"""WebSocket route of the Godot bridge: an editor keeps one connection, receives requests and responds by id."""

import asyncio
from contextlib import suppress
from typing import Any, Final

import msgspec
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from gateway.contract import Caller, Json
from gateway.edge.authentication import check_audience
from gateway.edge.request_parsing import fold_headers
from gateway.edge.stream_expiry import StreamExpiry
from gateway.edge.studio_bridge import Authenticate, BridgeConnectionExpiry, BridgeRelay
from gateway.errors import Fault, Kind

PATH: Final = "/bridge/godot"
SCOPE: Final = "bridge:godot"
_POLL: Final = 25.0
_MAX_NAME: Final = 500
_MAX_EVENT: Final = 64 * 1024
_CLOSE_POLICY_VIOLATION: Final = 1008
_CLOSE_GOING_AWAY: Final = 1001


def godot_bridge(
    relay: BridgeRelay, authenticate: Authenticate, stream_expiry: StreamExpiry, namespace: str = "godot"
) -> WebSocketRoute:
    """Build the route. It needs a key or token for this namespace with the scope `bridge:godot`; `?project=` names the
    open project."""

    async def endpoint(socket: WebSocket) -> None:
        try:
            caller, token = await _caller(socket, authenticate, f"/mcp/{namespace}")
            project = _project(socket)
        except Fault as fault:
            await socket.close(_CLOSE_POLICY_VIOLATION, fault.message)
            return
        await socket.accept()
        session = await relay.open(namespace, caller, project)
        hold = BridgeConnectionExpiry()
        stream_expiry.add(caller, hold)
        try:
            await _relay_lines(socket, relay, caller, session, token, hold)
        finally:
            stream_expiry.remove(hold)
            with suppress(Fault):  # a newer connection of the same editor has replaced it
                await relay.close(caller, session)

    return WebSocketRoute(PATH, endpoint)


async def _caller(socket: WebSocket, authenticate: Authenticate, endpoint: str) -> tuple[Caller, str]:
    headers = fold_headers(socket.scope["headers"])
    caller = await authenticate(headers, socket.client.host if socket.client else "")
    check_audience(caller, endpoint)
    if SCOPE not in caller.scopes:
        raise Fault(
            Kind.DENIED,
            f"This credential lacks the scope {SCOPE}. Create a key with it: gatehouse key create --scope {SCOPE}.",
        )
    return caller, headers.get("authorization", "")[7:].strip()


def _project(socket: WebSocket) -> str:
    project = socket.query_params.get("project", "").rstrip("/")
    if not project or len(project) > _MAX_NAME or not project.isprintable():
        raise Fault(Kind.INVALID_INPUT, "The query parameter 'project' must name the open project.")
    return project


async def _relay_lines(
    socket: WebSocket, relay: BridgeRelay, caller: Caller, session: str, token: str, hold: BridgeConnectionExpiry
) -> None:
    """Exchange lines until either side disconnects, the session is replaced, or the credential ends."""
    ends = [
        asyncio.create_task(_send_requests(socket, relay, caller, session, token)),
        asyncio.create_task(_receive_responses(socket, relay, caller, session)),
        asyncio.create_task(hold.wait_ended()),
    ]
    try:
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in ends:
            task.cancel()
        results = await asyncio.gather(*ends, return_exceptions=True)
    with suppress(RuntimeError, WebSocketDisconnect):  # already closed
        await socket.close(_CLOSE_POLICY_VIOLATION if hold.revoked else _CLOSE_GOING_AWAY)
    for end in results:
        if isinstance(end, Exception) and not isinstance(end, Fault | WebSocketDisconnect):
            raise end


async def _send_requests(socket: WebSocket, relay: BridgeRelay, caller: Caller, session: str, token: str) -> None:
    while True:
        line = await relay.read(caller, session, token, _POLL)
        if line is not None:
            await socket.send_text(line)


async def _receive_responses(socket: WebSocket, relay: BridgeRelay, caller: Caller, session: str) -> None:
    while True:
        line = await socket.receive_text()
        event = _event(line)
        if event is None:
            await relay.write(caller, session, line)
        elif len(line) <= _MAX_EVENT:
            relay.publish_event(caller, session, event)


class _Event(msgspec.Struct):
    event: str
    data: dict[str, Any] = {}


def _event(line: str) -> Json | None:
    """Parse an event, which has no request id and gets no response; None for any other line."""
    try:
        decoded = msgspec.json.decode(line, type=_Event)
    except (msgspec.DecodeError, RecursionError):
        return None
    return {"event": decoded.event[:_MAX_NAME], "data": decoded.data}
