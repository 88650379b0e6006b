"""WebSocket route of the Godot bridge: an editor keeps one connection, receives requests and responds by id."""

import asyncio
from contextlib import suppress
from typing import Any, Final

import msgspec

from backends.gox.peer_protocol import GoxLines, encode
from gateway.contract import Caller, Host, Json, SocketClosed, WebSocket, WebSocketRoute
from gateway.errors import Fault, Kind

SCOPE: Final = "bridge:godot"
_POLL: Final = 25.0
_MAX_NAME: Final = 500
_MAX_EVENT: Final = 64 * 1024
_GOING_AWAY: Final = 1001


class EditorBridge:
    """Exchanges lines with editors. The query parameter `project` names the open project."""

    def __init__(self, host: Host) -> None:
        self._path = f"/bridge/{host.namespace}"
        self._peers = host.peers

    def routes(self) -> list[WebSocketRoute]:
        return [WebSocketRoute(path=self._path, scope=SCOPE, handler=self._serve)]

    async def _serve(self, socket: WebSocket) -> None:
        project = _project(socket)
        await socket.accept()
        session = await self._peers.open(socket.caller, project, GoxLines())
        try:
            await self._exchange_lines(socket, session)
        finally:
            with suppress(Fault):  # a newer connection of the same editor has replaced it
                await self._peers.close(socket.caller, session)

    async def _exchange_lines(self, socket: WebSocket, session: str) -> None:
        """Exchange lines until either side disconnects or the session is replaced."""
        tasks = [
            asyncio.create_task(self._send_requests(socket, session)),
            asyncio.create_task(self._receive_responses(socket, socket.caller, session)),
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
        await socket.close(_GOING_AWAY)
        for result in results:
            if isinstance(result, Exception) and not isinstance(result, Fault | SocketClosed):
                raise result

    async def _send_requests(self, socket: WebSocket, session: str) -> None:
        while True:
            message = await self._peers.read(socket.caller, session, _POLL)
            if message is not None:
                await socket.send(encode(message, socket.credential))

    async def _receive_responses(self, socket: WebSocket, caller: Caller, session: str) -> None:
        while True:
            line = await socket.receive()
            if isinstance(line, bytes):
                raise Fault(Kind.INVALID_INPUT, "Send text messages.")
            event = _event(line)
            if event is None:
                await self._peers.write(caller, session, line)
            elif len(line) <= _MAX_EVENT:
                self._peers.publish_event(caller, session, event)


def _project(socket: WebSocket) -> str:
    project = socket.query.get("project", "").rstrip("/")
    if not project or len(project) > _MAX_NAME or not project.isprintable():
        raise Fault(Kind.INVALID_INPUT, "The query parameter 'project' must name the open project.")
    return project


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
