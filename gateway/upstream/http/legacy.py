"""Streamable HTTP in the handshake era: one session per principal, opened on demand and reopened when it is lost."""

import asyncio
import itertools
from collections.abc import Awaitable, Coroutine
from contextlib import suppress
from typing import Any, Final

import msgspec
from mcp.types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION

from gateway.contract import Json
from gateway.errors import Fault, ForeignError, Kind
from gateway.upstream.conversation import (
    LISTING_CAPABILITIES,
    MessageHandler,
    NullMessageHandler,
    capability_names,
    forwarded_capabilities,
)
from gateway.upstream.http.pool import LeasedConnection
from gateway.upstream.http.request import LegacyRequest, SessionKey
from gateway.upstream.http.responses import (
    Reply,
    StreamInterrupted,
    parse_result,
    read_notifications,
    read_result,
    status_fault,
)
from gateway.upstream.http.sessions import MAX_SESSIONS, UpstreamSession, UpstreamSessions
from gateway.upstream.http.target import HttpTarget
from gateway.upstream.lists import ChangeListener

_INVALID_PARAMS: Final = -32602
RETRY_MS: Final = 1000
OPEN_SECONDS: Final = 30.0
POST_SECONDS: Final = 10.0
CLOSE_SECONDS: Final = 2.0
_NOT_STREAMABLE: Final = frozenset({400, 404, 405})
"""The statuses with which a server of the SSE transport answers a POST of `initialize`."""
_encode: Final = msgspec.json.Encoder().encode
_NULL_HANDLER: Final = NullMessageHandler()


class EraNotSupported(Fault):
    """The server rejects `initialize` by POST: it may support the older SSE transport only."""

    def __init__(self, name: str, status: int) -> None:
        super().__init__(Kind.UNAVAILABLE, f"{name} responded with HTTP {status}.")


class SessionForgotten(Fault):
    """The server no longer knows the session; it did not execute the request."""

    def __init__(self, name: str, session: UpstreamSession) -> None:
        super().__init__(Kind.UNAVAILABLE, f"{name} no longer knows the session. Try again.")
        self.session = session


class LegacyHttp:
    """Streamable HTTP client of one handshake-era server."""

    def __init__(
        self, name: str, target: HttpTarget, max_bytes: int, info: Json, max_sessions: int = MAX_SESSIONS
    ) -> None:
        self._name = name
        self._target = target
        self._max_bytes = max_bytes
        self._info = info
        self._ids = itertools.count(1)
        self._sessions = UpstreamSessions(max_sessions)
        self._background: set[asyncio.Task[None]] = set()

    async def request(self, request: LegacyRequest) -> Json:
        """Send a request in the principal's session. Opens a new session, once, if the server lost it."""
        session = self._sessions.get(request.session_key)
        if request.session is not None:
            return await self._request_in(request.session, session, request)
        try:
            if (
                session is None
                or session.initialize_result is None
                or session.accepts_requests
                or request.log_level != session.log_level
            ):
                return await self._request(request)
            # Fast path: the session is open and needs neither a standalone stream nor another log level.
            self._sessions.move_to_end(request.session_key)
            return await self._exchange(session, request.method, request.params, request.handler, request.headers)
        except SessionForgotten as error:
            self._sessions.drop(request.session_key, error.session)
            return await self._request(request)

    def session_of(self, session_key: SessionKey) -> str:
        """Return the principal's session in a form that any replica can use; empty if it has none."""
        session = self._sessions.get(session_key)
        return f"{session.version} {session.id}" if session is not None and session.id is not None else ""

    async def _request_in(self, pinned: str, current: UpstreamSession | None, request: LegacyRequest) -> Json:
        """Send a request in a session that this or another replica has opened."""
        version, _, id = pinned.partition(" ")
        session = current if current is not None and current.id == id else None
        if session is None:
            session = UpstreamSession(self._read_stream, accepts_requests=False)
            session.establish(id, version)
        try:
            return await self._exchange(session, request.method, request.params, request.handler, request.headers)
        except SessionForgotten as error:
            # The server has forgotten the session, and with it the task.
            raise ForeignError(_INVALID_PARAMS, "Unknown task") from error

    async def _request(self, request: LegacyRequest) -> Json:
        session = self._sessions.get(request.session_key)
        if session is None or session.initialize_result is None:
            session = await self._get_session(request.session_key, request.capabilities)
        else:
            self._sessions.move_to_end(request.session_key)
        method, params, handler, log_level = request.method, request.params, request.handler, request.log_level
        if log_level is not None and log_level != session.log_level and session.has_logging:
            await self._exchange(session, "logging/setLevel", {"level": log_level}, _NULL_HANDLER, request.headers)
            session.log_level = log_level
        if not session.accepts_requests or isinstance(handler, NullMessageHandler):
            return await self._exchange(session, method, params, handler, request.headers)
        with session.stream.attach(handler):
            await session.stream.open()
            return await self._exchange(session, method, params, handler, request.headers)

    async def initialize(self, session_key: SessionKey, capabilities: Json) -> Json:
        """Return the server's `initialize` result. Raises `EraNotSupported` if it may support only SSE."""
        return (await self._get_session(session_key, capabilities)).initialize_result or {}

    async def _get_session(self, session_key: SessionKey, capabilities: Json) -> UpstreamSession:
        session = self._sessions.get(session_key)
        if session is None:
            session = self._sessions[session_key] = UpstreamSession(
                self._read_stream, accepts_requests=bool(capability_names(capabilities)), owner=session_key[0]
            )
        self._sessions.move_to_end(session_key)
        if session.initialize_result is None:
            session.active_requests += 1
            try:
                for other in self._sessions.evict():
                    self._spawn(self._end_session(other))
                await self._ensure_open(session, capabilities)
            finally:
                session.active_requests -= 1
        return session

    async def _ensure_open(self, session: UpstreamSession, capabilities: Json) -> None:
        async with session.open_lock:
            if session.initialize_result is not None:
                return
            try:
                async with asyncio.timeout(OPEN_SECONDS):
                    await self._open(session, capabilities)
            except TimeoutError as exc:
                raise Fault(Kind.UNAVAILABLE, f"{self._name} did not respond within {OPEN_SECONDS:g} s.") from exc

    async def close(self) -> None:
        """End all sessions; errors and an unreachable server are ignored."""
        sessions = list(self._sessions.values())
        self._sessions.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await asyncio.gather(*map(self._end_session, sessions))

    async def _end_session(self, session: UpstreamSession) -> None:
        session.stream.close()
        if session.id is not None and not session.has_tasks:
            with suppress(Fault):
                (await self._target.send_without_body("DELETE", session.headers, session.owner)).release()

    async def _open(self, session: UpstreamSession, capabilities: Json) -> None:
        params: Json = {
            "protocolVersion": LATEST_HANDSHAKE_VERSION,
            "capabilities": forwarded_capabilities(capabilities),
            "clientInfo": self._info,
        }
        id = next(self._ids)
        message: Json = {"jsonrpc": "2.0", "id": id, "method": "initialize", "params": params}
        leased = await self._post(b"", message, session.owner)
        try:
            if leased.response.status in _NOT_STREAMABLE:
                raise EraNotSupported(self._name, leased.response.status)
            result = await self._read_response(leased, session, id, _NULL_HANDLER)
            session_id = leased.response.headers.get("mcp-session-id")
        finally:
            leased.release()
        version: Any = result.get("protocolVersion")
        if version not in HANDSHAKE_PROTOCOL_VERSIONS:
            raise Fault(Kind.UNAVAILABLE, f"{self._name} has no protocol version in common with the gateway.")
        session.establish(session_id, version)
        await self._post_message(session, {"jsonrpc": "2.0", "method": "notifications/initialized"})
        session.initialize_result = result

    async def _exchange(
        self, session: UpstreamSession, method: str, params: Json, handler: MessageHandler, headers: bytes = b""
    ) -> Json:
        id = next(self._ids)
        handler.on_sent(id, session.version, session.digest)
        message = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
        session.has_tasks = session.has_tasks or "task" in params
        leased: LeasedConnection | None = None
        session.active_requests += 1
        try:
            leased = await self._post(session.headers + headers, message, session.owner)
            if leased.response.status == 404 and session.id is not None:
                raise SessionForgotten(self._name, session)
            if leased.response.body is not None:
                return parse_result(self._name, leased.response, id)
            return await self._read_response(leased, session, id, handler)
        except asyncio.CancelledError:
            # In this era closing the connection does not cancel the request: notify the server.
            self._notify_in_background(session, "notifications/cancelled", {"requestId": id})
            raise
        finally:
            session.active_requests -= 1
            if leased is not None:
                leased.release()

    async def _read_response(
        self, leased: LeasedConnection, session: UpstreamSession, id: int, handler: MessageHandler
    ) -> Json:
        async def reply(response: Json) -> None:
            await self._post_message(session, response)

        try:
            return await read_result(self._name, leased.response, id, handler, reply, self._max_bytes)
        except StreamInterrupted as interruption:
            return await self._resume(session, interruption, id, handler, reply)

    async def _resume(
        self, session: UpstreamSession, interruption: StreamInterrupted, id: int, handler: MessageHandler, reply: Reply
    ) -> Json:
        """Resume a stream that the server closed before the response, as often as it closes it."""
        if interruption.last_id:
            await handler.on_stream_closed()
        while interruption.last_id:
            await asyncio.sleep((interruption.retry_ms or RETRY_MS) / 1000)
            headers = b"%blast-event-id: %b\r\n" % (session.headers, interruption.last_id.encode())
            leased = await self._target.send_without_body("GET", headers, session.owner)
            try:
                if leased.response.status != 200:
                    break
                return await read_result(self._name, leased.response, id, handler, reply, self._max_bytes)
            except StreamInterrupted as repeated:
                repeated.last_id = repeated.last_id or interruption.last_id
                interruption = repeated
            finally:
                leased.release()
        raise interruption

    async def listen(self, session_key: SessionKey, handler: MessageHandler) -> None:
        """Read the standalone stream until it ends. Raises `ForeignError` if the server has none."""
        session = await self._get_session(session_key, LISTING_CAPABILITIES)
        session.active_requests += 1
        try:
            await self._read_stream(session, handler, asyncio.Event())
        except SessionForgotten:
            self._sessions.drop(session_key, session)
        finally:
            session.active_requests -= 1

    async def subscribe(
        self, session_key: SessionKey, capabilities: Json, uris: frozenset[str], listener: ChangeListener
    ) -> None:
        """Subscribe in the principal's session and pass updates to `listener` until its stream ends."""
        try:
            await self._subscribe(await self._get_session(session_key, capabilities), uris, listener)
        except SessionForgotten as error:
            self._sessions.drop(session_key, error.session)
            await self._subscribe(await self._get_session(session_key, capabilities), uris, listener)

    async def _subscribe(self, session: UpstreamSession, uris: frozenset[str], listener: ChangeListener) -> None:
        with session.stream.attach(listener):
            await session.stream.open()
            try:
                for uri in session.subscribed.add(uris):
                    await self._exchange(session, "resources/subscribe", {"uri": uri}, _NULL_HANDLER)
                listener.on_ready()
                await session.stream.wait_closed()
            finally:
                for uri in session.subscribed.remove(uris):
                    self._spawn(self._unsubscribe(session, uri))

    async def _unsubscribe(self, session: UpstreamSession, uri: str) -> None:
        with suppress(Fault, ForeignError):
            await self._exchange(session, "resources/unsubscribe", {"uri": uri}, _NULL_HANDLER)

    async def _read_stream(self, session: UpstreamSession, handler: MessageHandler, opened: asyncio.Event) -> None:
        async def reply(response: Json) -> None:
            await self._post_message(session, response)

        leased = await self._target.send_without_body("GET", session.headers, session.owner)
        try:
            if leased.response.status == 404 and session.id is not None:
                raise SessionForgotten(self._name, session)
            if leased.response.body is not None:
                raise ForeignError(-32601, f"HTTP {leased.response.status}")
            opened.set()
            await read_notifications(self._name, leased.response, handler, reply, self._max_bytes)
        finally:
            leased.release()

    def _post(self, headers: bytes, message: Json, owner: str) -> Awaitable[LeasedConnection]:
        idempotent = message.get("method") != "tools/call"
        return self._target.post(headers, _encode(message), idempotent=idempotent, owner=owner)

    async def _post_message(self, session: UpstreamSession, message: Json) -> None:
        """Post a notification or a response; the server replies with a status only."""
        try:
            async with asyncio.timeout(POST_SECONDS):
                leased = await self._post(session.headers, message, session.owner)
        except TimeoutError as exc:
            raise Fault(Kind.UNAVAILABLE, f"{self._name} did not accept a message within {POST_SECONDS:g} s.") from exc
        try:
            if leased.response.status >= 400:
                raise status_fault(self._name, leased.response)
        finally:
            leased.release()

    def _notify_in_background(self, session: UpstreamSession, method: str, params: Json) -> None:
        async def post() -> None:
            with suppress(Fault):
                await self._post_message(session, {"jsonrpc": "2.0", "method": method, "params": params})

        self._spawn(post())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
