"""The relay that a Studio speaks to: it can only make requests, so it polls for lines and posts its answers."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Final, Protocol, TypeVar

import msgspec
from fastapi import APIRouter, Request, Response

from gateway.contract import Caller, Json
from gateway.edge.authentication import check_audience
from gateway.edge.error_response import refusal
from gateway.edge.headers import fold
from gateway.edge.request_limits import read_body
from gateway.edge.stream_expiry import StreamExpiry
from gateway.errors import TABLE, Fault, Kind

Authenticate = Callable[[Mapping[str, str], str], Awaitable[Caller]]
"""Headers and client address -> who calls. Raises `Fault`."""

SCOPE: Final = "bridge:roblox"
_PREFIX: Final = "/v1/bridge/session"
_MAX_BODY: Final = 8 * 1024 * 1024
_POLL: Final = 25.0

T = TypeVar("T")


class StudioRelay(Protocol):
    """Where the lines come from and go to. Every method raises `Fault(NOT_FOUND)` for another's session."""

    async def open(self, namespace: str, caller: Caller, name: str) -> str: ...

    async def read(self, caller: Caller, session_id: str, token: str, timeout: float) -> str | None: ...

    async def write(self, caller: Caller, session_id: str, line: str) -> None: ...

    async def close(self, caller: Caller, session_id: str) -> None: ...

    def cut(self, session_id: str) -> None: ...

    def tell(self, caller: Caller, session_id: str, event: Json) -> None: ...


class _Opening(msgspec.Struct):
    clientName: str = "studio"


class _Writing(msgspec.Struct):
    line: str


def bridge_router(
    relay: StudioRelay, authenticate: Authenticate, tenures: StreamExpiry, namespace: str = "roblox"
) -> APIRouter:
    """The four routes. The credential is a key, or a token for all or for this namespace, with the scope
    `bridge:roblox`; a session ends with it."""
    router = APIRouter(prefix=_PREFIX, tags=["bridge"])
    door = _Door(authenticate, f"/mcp/{namespace}")

    @router.post("")
    async def open_session(request: Request) -> Response:  # pyright: ignore[reportUnusedFunction]
        async def answer(caller: Caller, token: str) -> Response:
            body = await _body(request)
            name = _decoded(body, _Opening).clientName.strip()[:100] if body else ""
            return _json({"sessionId": await relay.open(namespace, caller, name or "studio")})

        return await door(request, answer)

    @router.get("/{session_id}/read")
    async def read(request: Request, session_id: str) -> Response:  # pyright: ignore[reportUnusedFunction]
        async def answer(caller: Caller, token: str) -> Response:
            timeout = _timeout(request.query_params.get("timeout_ms"))
            hold = BridgeHold()
            tenures.opened(caller, hold)
            try:
                waiting = relay.read(caller, session_id, token, timeout)
                line = await _unless_gone(request, waiting, hold, lambda: relay.cut(session_id))
            finally:
                tenures.closed(hold)
            if hold.revoked:
                with suppress(Fault):  # it has ended by itself
                    await relay.close(caller, session_id)
                raise Fault(Kind.UNAUTHENTICATED, "The credential is no longer good.", details={"reason": "invalid"})
            return Response(status_code=204) if line is None else _json({"line": line})

        return await door(request, answer)

    @router.post("/{session_id}/write")
    async def write(request: Request, session_id: str) -> Response:  # pyright: ignore[reportUnusedFunction]
        async def answer(caller: Caller, token: str) -> Response:
            await relay.write(caller, session_id, _decoded(await _body(request), _Writing).line)
            return Response(status_code=204)

        return await door(request, answer)

    @router.delete("/{session_id}/close")
    async def close(request: Request, session_id: str) -> Response:  # pyright: ignore[reportUnusedFunction]
        async def answer(caller: Caller, token: str) -> Response:
            await relay.close(caller, session_id)
            return Response(status_code=204)

        return await door(request, answer)

    return router


class BridgeHold:
    """`gateway.edge.stream_expiry.Stream`: what waits at this door on the strength of a credential."""

    def __init__(self) -> None:
        self._over = asyncio.Event()
        self.revoked = False

    def cut(self, *, stop: bool) -> None:
        self.revoked = stop
        self._over.set()

    async def over(self) -> None:
        """Until the credential has expired or was revoked."""
        await self._over.wait()


class _Door:
    """No credential, no service; a fault is answered once, here."""

    def __init__(self, authenticate: Authenticate, endpoint: str) -> None:
        self._authenticate = authenticate
        self._endpoint = endpoint

    async def __call__(self, request: Request, answer: Callable[[Caller, str], Awaitable[Response]]) -> Response:
        try:
            headers = fold(request.scope["headers"])
            # The plugin's own header; it counts on these routes only.
            if (token := headers.get("x-gox-auth")) is not None:
                headers["authorization"] = f"Bearer {token}"
            given = headers.get("authorization", "")
            caller = await self._authenticate(headers, request.client.host if request.client else "")
            check_audience(caller, self._endpoint)
            if SCOPE not in caller.scopes:
                raise Fault(Kind.DENIED, f"This credential lacks the scope {SCOPE}.")
            return await answer(caller, given[7:].strip())
        except Fault as fault:
            return _refused(fault)


async def _unless_gone(
    request: Request, waiting: Awaitable[str | None], hold: BridgeHold, cut: Callable[[], None]
) -> str | None:
    """What the poll gives; when the Studio hangs up or loses its credential first, the poll takes no line with it."""
    poll = asyncio.ensure_future(waiting)
    gone = asyncio.ensure_future(_hung_up(request))
    ended = asyncio.ensure_future(hold.over())
    try:
        await asyncio.wait((poll, gone, ended), return_when=asyncio.FIRST_COMPLETED)
        if poll.done():
            return poll.result()
        cut()
        return None
    finally:
        for task in (poll, gone, ended):
            task.cancel()
        await asyncio.gather(poll, gone, ended, return_exceptions=True)


async def _hung_up(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _body(request: Request) -> bytes:
    return await read_body(request.scope, request.receive, _MAX_BODY)


def _decoded(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, RecursionError) as exc:
        raise Fault(Kind.INVALID_INPUT, "The body is not what this route takes.") from exc


def _timeout(milliseconds: str | None) -> float:
    if milliseconds is None or not milliseconds.isascii() or not milliseconds.isdigit():
        return _POLL
    return min(int(milliseconds[:9]) / 1000, _POLL)


def _json(body: object) -> Response:
    return Response(msgspec.json.encode(body), media_type="application/json", headers={"cache-control": "no-store"})


def _refused(fault: Fault) -> Response:
    headers, body = refusal(fault)
    response = Response(body, int(fault.details.get("http_status", 0)) or TABLE[fault.kind].http)
    response.raw_headers = headers
    if fault.kind is Kind.UNAUTHENTICATED:
        response.headers["www-authenticate"] = "Bearer"
    return response
