"""HTTP routes of the Studio bridge: Studio can only send requests, so it polls for lines and posts its responses."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, Literal, TypeVar

import msgspec

from backends.gox.peer_protocol import GoxLines, encode
from gateway.contract import EndReason, Host, HttpRequest, HttpResponse, HttpRoute, Json
from gateway.errors import Fault, Kind

SCOPE: Final = "bridge:roblox"
_PREFIX: Final = "/v1/bridge/session"
_HEADER: Final = "x-gox-auth"
"""The plugin's own header for its credential."""
_MAX_BODY: Final = 8 * 1024 * 1024
_MAX_POLL_SECONDS: Final = 25.0
_NAME: Final = "studio"
_MAX_NAME: Final = 100

T = TypeVar("T")


class _OpenBody(msgspec.Struct):
    clientName: str = _NAME
    studio: str = ""
    """Random id of the running Studio. A name is only a label: two windows may share it, and share the key."""
    placeId: float = 0
    placeName: str = ""
    context: Literal["edit", "server", "client"] = "edit"


class _WriteBody(msgspec.Struct):
    line: str


class StudioBridge:
    """Exchanges lines with Studios. A session ends when its credential does."""

    def __init__(self, host: Host) -> None:
        self._peers = host.peers

    def routes(self) -> list[HttpRoute]:
        return [
            _route("POST", "", self._open),
            _route("GET", "/{session}/read", self._read),
            _route("POST", "/{session}/write", self._write),
            _route("DELETE", "/{session}/close", self._close),
        ]

    async def _open(self, request: HttpRequest) -> HttpResponse:
        body = await request.body()
        opened = _decode(body, _OpenBody) if body else _OpenBody()
        name = opened.clientName.strip()[:_MAX_NAME] or _NAME
        identity = f"{opened.studio[:_MAX_NAME]}/{opened.context}" if opened.studio else ""
        about = {"placeId": opened.placeId, "placeName": opened.placeName[:_MAX_NAME], "context": opened.context}
        session = await self._peers.open(request.caller, name, GoxLines(), identity=identity, about=about)
        return HttpResponse.json({"sessionId": session})

    async def _read(self, request: HttpRequest) -> HttpResponse:
        caller, session = request.caller, request.path_params["session"]
        timeout = _timeout(request.query.get("timeout_ms"))
        message, ended = await _until_ended(request, self._peers.read(caller, session, timeout))
        if ended is not None:
            self._peers.connection_lost(session)
        if ended == "revoked":
            with suppress(Fault):  # the session has already ended
                await self._peers.close(caller, session)
            raise Fault(Kind.UNAUTHENTICATED, "The credential was revoked.", details={"reason": "invalid"})
        if ended == "stopped":
            raise Fault(Kind.NOT_FOUND, "The backend is no longer served.")
        return HttpResponse() if message is None else HttpResponse.json({"line": encode(message, request.credential)})

    async def _write(self, request: HttpRequest) -> HttpResponse:
        line = _decode(await request.body(), _WriteBody).line
        await self._peers.write(request.caller, request.path_params["session"], line)
        return HttpResponse()

    async def _close(self, request: HttpRequest) -> HttpResponse:
        await self._peers.close(request.caller, request.path_params["session"])
        return HttpResponse()


def _route(method: str, path: str, handler: Callable[[HttpRequest], Awaitable[HttpResponse]]) -> HttpRoute:
    return HttpRoute(
        method=method,
        path=_PREFIX + path,
        scope=SCOPE,
        handler=handler,
        max_body_bytes=_MAX_BODY,
        credential_header=_HEADER,
    )


async def _until_ended(request: HttpRequest, waiting: Awaitable[Json | None]) -> tuple[Json | None, EndReason | None]:
    """Return the polled message, or why the request ended before: then no message is consumed."""
    poll = asyncio.ensure_future(waiting)
    ended = asyncio.ensure_future(request.wait_ended())
    try:
        await asyncio.wait((poll, ended), return_when=asyncio.FIRST_COMPLETED)
        return (poll.result(), None) if poll.done() else (None, ended.result())
    finally:
        for task in (poll, ended):
            task.cancel()
        await asyncio.gather(poll, ended, return_exceptions=True)


def _decode(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, RecursionError) as exc:
        raise Fault(Kind.INVALID_INPUT, "The request body is invalid.") from exc


def _timeout(milliseconds: str | None) -> float:
    if milliseconds is None or not milliseconds.isascii() or not milliseconds.isdigit():
        return _MAX_POLL_SECONDS
    return min(int(milliseconds[:9]) / 1000, _MAX_POLL_SECONDS)
