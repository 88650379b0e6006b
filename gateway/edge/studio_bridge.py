"""HTTP routes of the Studio bridge: Studio can only send requests, so it polls for lines and posts its responses."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Final, Protocol, TypeVar

import msgspec
from fastapi import APIRouter, Request, Response

from gateway.contract import Caller, Json
from gateway.edge.authentication import check_audience
from gateway.edge.error_response import render_fault
from gateway.edge.request_parsing import fold_headers, read_body
from gateway.edge.stream_expiry import StreamExpiry
from gateway.errors import TABLE, Fault, Kind

Authenticate = Callable[[Mapping[str, str], str], Awaitable[Caller]]
"""Headers and client address -> caller. Raises `Fault`."""

SCOPE: Final = "bridge:roblox"
_PREFIX: Final = "/v1/bridge/session"
_MAX_BODY: Final = 8 * 1024 * 1024
_MAX_POLL_SECONDS: Final = 25.0

T = TypeVar("T")


class BridgeRelay(Protocol):
    """Exchanges lines with a session. Every method raises `Fault(NOT_FOUND)` for a session of another owner."""

    async def open(self, namespace: str, caller: Caller, name: str) -> str: ...

    async def read(self, caller: Caller, session_id: str, token: str, timeout: float) -> str | None: ...

    async def write(self, caller: Caller, session_id: str, line: str) -> None: ...

    async def close(self, caller: Caller, session_id: str) -> None: ...

    def connection_lost(self, session_id: str) -> None: ...

    def publish_event(self, caller: Caller, session_id: str, event: Json) -> None: ...


class _OpenBody(msgspec.Struct):
    clientName: str = "studio"


class _WriteBody(msgspec.Struct):
    line: str


def bridge_router(
    relay: BridgeRelay, authenticate: Authenticate, stream_expiry: StreamExpiry, namespace: str = "roblox"
) -> APIRouter:
    """Build the four routes. They need a key or token for this namespace with the scope `bridge:roblox`; a session ends
    when its credential does."""
    router = APIRouter(prefix=_PREFIX, tags=["bridge"])
    authorization = _BridgeAuthorization(authenticate, f"/mcp/{namespace}")

    @router.post("")
    async def open_session(request: Request) -> Response:  # pyright: ignore[reportUnusedFunction]
        async def answer(caller: Caller, token: str) -> Response:
            body = await _body(request)
            name = _decode(body, _OpenBody).clientName.strip()[:100] if body else ""
            return _json({"sessionId": await relay.open(namespace, caller, name or "studio")})

        return await authorization(request, answer)

    @router.get("/{session_id}/read")
    async def read(request: Request, session_id: str) -> Response:  # pyright: ignore[reportUnusedFunction]
        async def answer(caller: Caller, token: str) -> Response:
            timeout = _timeout(request.query_params.get("timeout_ms"))
            hold = BridgeConnectionExpiry()
            stream_expiry.add(caller, hold)
            try:
                waiting = relay.read(caller, session_id, token, timeout)
                line = await _poll_until_disconnect(request, waiting, hold, lambda: relay.connection_lost(session_id))
            finally:
                stream_expiry.remove(hold)
            if hold.revoked:
                with suppress(Fault):  # the session has already ended
                    await relay.close(caller, session_id)
                raise Fault(Kind.UNAUTHENTICATED, "The credential was revoked.", details={"reason": "invalid"})
            return Response(status_code=204) if line is None else _json({"line": line})

        return await authorization(request, answer)

    @router.post("/{session_id}/write")
    async def write(request: Request, session_id: str) -> Response:  # pyright: ignore[reportUnusedFunction]
        async def answer(caller: Caller, token: str) -> Response:
            await relay.write(caller, session_id, _decode(await _body(request), _WriteBody).line)
            return Response(status_code=204)

        return await authorization(request, answer)

    @router.delete("/{session_id}/close")
    async def close(request: Request, session_id: str) -> Response:  # pyright: ignore[reportUnusedFunction]
        async def answer(caller: Caller, token: str) -> Response:
            await relay.close(caller, session_id)
            return Response(status_code=204)

        return await authorization(request, answer)

    return router


class BridgeConnectionExpiry:
    """Implements `ExpiringStream` for a bridge connection."""

    def __init__(self) -> None:
        self._over = asyncio.Event()
        self.revoked = False

    def end(self, *, stop: bool) -> None:
        self.revoked = stop
        self._over.set()

    async def wait_ended(self) -> None:
        """Wait until the credential expires or is revoked."""
        await self._over.wait()


class _BridgeAuthorization:
    """Authenticates a bridge request and renders its faults."""

    def __init__(self, authenticate: Authenticate, endpoint: str) -> None:
        self._authenticate = authenticate
        self._endpoint = endpoint

    async def __call__(self, request: Request, answer: Callable[[Caller, str], Awaitable[Response]]) -> Response:
        try:
            headers = fold_headers(request.scope["headers"])
            # The Gox plugin's own header, accepted on these routes only.
            if (token := headers.get("x-gox-auth")) is not None:
                headers["authorization"] = f"Bearer {token}"
            given = headers.get("authorization", "")
            caller = await self._authenticate(headers, request.client.host if request.client else "")
            check_audience(caller, self._endpoint)
            if SCOPE not in caller.scopes:
                hint = f"Create a key with it: gatehouse key create --scope {SCOPE}."
                raise Fault(Kind.DENIED, f"This credential lacks the scope {SCOPE}. {hint}")
            return await answer(caller, given[7:].strip())
        except Fault as fault:
            return _error_response(fault)


async def _poll_until_disconnect(
    request: Request, waiting: Awaitable[str | None], hold: BridgeConnectionExpiry, on_abort: Callable[[], None]
) -> str | None:
    """Return the polled line. If Studio disconnects or its credential ends first, no line is consumed."""
    poll = asyncio.ensure_future(waiting)
    gone = asyncio.ensure_future(_wait_for_disconnect(request))
    ended = asyncio.ensure_future(hold.wait_ended())
    try:
        await asyncio.wait((poll, gone, ended), return_when=asyncio.FIRST_COMPLETED)
        if poll.done():
            return poll.result()
        on_abort()
        return None
    finally:
        for task in (poll, gone, ended):
            task.cancel()
        await asyncio.gather(poll, gone, ended, return_exceptions=True)


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _body(request: Request) -> bytes:
    return await read_body(request.headers, request.receive, _MAX_BODY)


def _decode(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, RecursionError) as exc:
        raise Fault(Kind.INVALID_INPUT, "The request body is invalid.") from exc


def _timeout(milliseconds: str | None) -> float:
    if milliseconds is None or not milliseconds.isascii() or not milliseconds.isdigit():
        return _MAX_POLL_SECONDS
    return min(int(milliseconds[:9]) / 1000, _MAX_POLL_SECONDS)


def _json(body: object) -> Response:
    return Response(msgspec.json.encode(body), media_type="application/json", headers={"cache-control": "no-store"})


def _error_response(fault: Fault) -> Response:
    headers, body = render_fault(fault)
    response = Response(body, int(fault.details.get("http_status", 0)) or TABLE[fault.kind].http)
    response.raw_headers = headers
    if fault.kind is Kind.UNAUTHENTICATED:
        response.headers["www-authenticate"] = "Bearer"
    return response
