"""The handshake era over HTTP: a session for each principal, made when needed and again when the server forgot it."""

import asyncio
import itertools
from collections.abc import Awaitable, Coroutine
from contextlib import suppress
from typing import Any, Final

import msgspec
from mcp.types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION

from gateway.contract import Json
from gateway.errors import Fault, ForeignError, Kind
from gateway.upstream.conversation import ABLE, MessageHandler, NullMessageHandler, abilities, carried
from gateway.upstream.http.pool import LeasedConnection
from gateway.upstream.http.request import LegacyRequest, Who
from gateway.upstream.http.responses import Reply, StreamInterrupted, hear_all, read_answer, status_fault, whole_answer
from gateway.upstream.http.sessions import MAX_SESSIONS, UpstreamSession, UpstreamSessions
from gateway.upstream.http.target import HttpTarget
from gateway.upstream.lists import ChangeListener

RETRY_MS: Final = 1000
OPEN_SECONDS: Final = 30.0
TELL_SECONDS: Final = 10.0
CLOSE_SECONDS: Final = 2.0
_NO_SESSIONS: Final = frozenset({400, 404, 405})
"""What a server of the older transport says to a POST of `initialize`."""
_encode: Final = msgspec.json.Encoder().encode
_NOBODY: Final = NullMessageHandler()


class EraNotSupported(Fault):
    """The server has no such thing as a session by POST: it may be of the transport before this one."""

    def __init__(self, name: str, status: int) -> None:
        super().__init__(Kind.UNAVAILABLE, f"{name} answered with HTTP {status}.")


class SessionForgotten(Fault):
    """The server does not know the session any more; it did not carry the request out."""

    def __init__(self, name: str, session: UpstreamSession) -> None:
        super().__init__(Kind.UNAVAILABLE, f"{name} forgets its sessions.")
        self.session = session


class LegacyHttp:
    """One server, asked in the handshake era."""

    def __init__(
        self, name: str, site: HttpTarget, max_bytes: int, info: Json, max_sessions: int = MAX_SESSIONS
    ) -> None:
        self._name = name
        self._site = site
        self._max_bytes = max_bytes
        self._info = info
        self._ids = itertools.count(1)
        self._sessions = UpstreamSessions(max_sessions)
        self._aside: set[asyncio.Task[None]] = set()

    async def request(self, asked: LegacyRequest) -> Json:
        """The result, in that principal's session. A session the server forgot is made anew, once."""
        session = self._sessions.get(asked.who)
        try:
            if session is None or session.greeting is None or session.asks or asked.level != session.level:
                return await self._request(asked)
            # As a rule: it is open, and has nothing to be told or asked beside the request.
            self._sessions.move_to_end(asked.who)
            return await self._exchange(session, asked.method, asked.params, asked.talk, asked.lines)
        except SessionForgotten as gone:
            self._sessions.drop(asked.who, gone.session)
            return await self._request(asked)

    async def _request(self, asked: LegacyRequest) -> Json:
        session = self._sessions.get(asked.who)
        if session is None or session.greeting is None:
            session = await self.session(asked.who, asked.capabilities)
        else:
            self._sessions.move_to_end(asked.who)
        method, params, talk, level = asked.method, asked.params, asked.talk, asked.level
        if level is not None and level != session.level and session.logs:
            await self._exchange(session, "logging/setLevel", {"level": level}, _NOBODY, asked.lines)
            session.level = level
        if not session.asks or isinstance(talk, NullMessageHandler):
            return await self._exchange(session, method, params, talk, asked.lines)
        with session.beside.told(talk):
            await session.beside.open()
            return await self._exchange(session, method, params, talk, asked.lines)

    async def greeting(self, who: Who, capabilities: Json) -> Json:
        """What the server said of itself. Raises `NotSpoken` when it may be of the older transport."""
        return (await self.session(who, capabilities)).greeting or {}

    async def session(self, who: Who, capabilities: Json) -> UpstreamSession:
        session = self._sessions.get(who)
        if session is None:
            session = self._sessions[who] = UpstreamSession(self._hear, asks=bool(abilities(capabilities)))
        self._sessions.move_to_end(who)
        if session.greeting is None:
            session.active += 1
            try:
                for other in self._sessions.make_room():
                    self._spawn(self._end(other))
                await self._opened(session, capabilities)
            finally:
                session.active -= 1
        return session

    async def _opened(self, session: UpstreamSession, capabilities: Json) -> None:
        async with session.opening:
            if session.greeting is not None:
                return
            try:
                async with asyncio.timeout(OPEN_SECONDS):
                    await self._open(session, capabilities)
            except TimeoutError as exc:
                raise Fault(Kind.UNAVAILABLE, f"{self._name} does not answer.") from exc

    async def close(self) -> None:
        """Tell the server that our sessions are over, as far as it can be reached."""
        sessions = list(self._sessions.values())
        self._sessions.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await asyncio.gather(*map(self._end, sessions))

    async def _end(self, session: UpstreamSession) -> None:
        session.beside.close()
        if session.id is not None:
            with suppress(Fault):
                (await self._site.bare("DELETE", session.fields)).release()

    async def _open(self, session: UpstreamSession, capabilities: Json) -> None:
        params: Json = {
            "protocolVersion": LATEST_HANDSHAKE_VERSION,
            "capabilities": carried(capabilities),
            "clientInfo": self._info,
        }
        id = next(self._ids)
        leased = await self._post(b"", {"jsonrpc": "2.0", "id": id, "method": "initialize", "params": params})
        try:
            if leased.response.status in _NO_SESSIONS:
                raise EraNotSupported(self._name, leased.response.status)
            greeting = await self._answer(leased, session, id, _NOBODY)
            id_given = leased.response.headers.get("mcp-session-id")
        finally:
            leased.release()
        version: Any = greeting.get("protocolVersion")
        if version not in HANDSHAKE_PROTOCOL_VERSIONS:
            raise Fault(Kind.UNAVAILABLE, f"{self._name} speaks no protocol version that the gateway knows.")
        session.opened(id_given, version)
        await self._tell(session, {"jsonrpc": "2.0", "method": "notifications/initialized"})
        session.greeting = greeting

    async def _exchange(
        self, session: UpstreamSession, method: str, params: Json, talk: MessageHandler, lines: bytes = b""
    ) -> Json:
        id = next(self._ids)
        talk.sent(id, session.version, session.digest)
        message = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
        leased: LeasedConnection | None = None
        session.active += 1
        try:
            leased = await self._post(session.fields + lines, message)
            if leased.response.status == 404 and session.id is not None:
                raise SessionForgotten(self._name, session)
            if leased.response.body is not None:
                return whole_answer(self._name, leased.response, id)
            return await self._answer(leased, session, id, talk)
        except asyncio.CancelledError:
            # In this era a closed connection cancels nothing: the server has to be told.
            self._tell_aside(session, "notifications/cancelled", {"requestId": id})
            raise
        finally:
            session.active -= 1
            if leased is not None:
                leased.release()

    async def _answer(self, leased: LeasedConnection, session: UpstreamSession, id: int, talk: MessageHandler) -> Json:
        async def reply(answer: Json) -> None:
            await self._tell(session, answer)

        try:
            return await read_answer(self._name, leased.response, id, talk, reply, self._max_bytes)
        except StreamInterrupted as broken:
            return await self._resumed(session, broken, id, talk, reply)

    async def _resumed(
        self, session: UpstreamSession, broken: StreamInterrupted, id: int, talk: MessageHandler, reply: Reply
    ) -> Json:
        """A server may hang up in the middle and be asked for the rest, as often as it likes."""
        if broken.last_id:
            await talk.hung_up()
        while broken.last_id:
            await asyncio.sleep((broken.retry_ms or RETRY_MS) / 1000)
            lines = b"%blast-event-id: %b\r\n" % (session.fields, broken.last_id.encode())
            leased = await self._site.bare("GET", lines)
            try:
                if leased.response.status != 200:
                    break
                return await read_answer(self._name, leased.response, id, talk, reply, self._max_bytes)
            except StreamInterrupted as again:
                again.last_id = again.last_id or broken.last_id
                broken = again
            finally:
                leased.release()
        raise broken

    async def listen(self, who: Who, talk: MessageHandler) -> None:
        """What the server says outside of any request, until its stream ends. Raises `ForeignError` if it has none."""
        session = await self.session(who, ABLE)
        session.active += 1
        try:
            await self._hear(session, talk, asyncio.Event())
        except SessionForgotten:
            self._sessions.drop(who, session)
        finally:
            session.active -= 1

    async def hear(self, who: Who, capabilities: Json, uris: frozenset[str], hearing: ChangeListener) -> None:
        """Subscribe in that principal's session, and hear of updates until its stream ends."""
        try:
            await self._watch(await self.session(who, capabilities), uris, hearing)
        except SessionForgotten as gone:
            self._sessions.drop(who, gone.session)
            await self._watch(await self.session(who, capabilities), uris, hearing)

    async def _watch(self, session: UpstreamSession, uris: frozenset[str], hearing: ChangeListener) -> None:
        with session.beside.told(hearing):
            await session.beside.open()
            try:
                for uri in session.subscribed.more(uris):
                    await self._exchange(session, "resources/subscribe", {"uri": uri}, _NOBODY)
                hearing.ready()
                await session.beside.over()
            finally:
                for uri in session.subscribed.less(uris):
                    self._spawn(self._unsubscribe(session, uri))

    async def _unsubscribe(self, session: UpstreamSession, uri: str) -> None:
        with suppress(Fault, ForeignError):
            await self._exchange(session, "resources/unsubscribe", {"uri": uri}, _NOBODY)

    async def _hear(self, session: UpstreamSession, talk: MessageHandler, opened: asyncio.Event) -> None:
        async def reply(answer: Json) -> None:
            await self._tell(session, answer)

        leased = await self._site.bare("GET", session.fields)
        try:
            if leased.response.status == 404 and session.id is not None:
                raise SessionForgotten(self._name, session)
            if leased.response.body is not None:
                raise ForeignError(-32601, f"HTTP {leased.response.status}")
            opened.set()
            await hear_all(self._name, leased.response, talk, reply, self._max_bytes)
        finally:
            leased.release()

    def _post(self, lines: bytes, message: Json) -> Awaitable[LeasedConnection]:
        return self._site.post(lines, _encode(message), safe=message.get("method") != "tools/call")

    async def _tell(self, session: UpstreamSession, message: Json) -> None:
        """A notification, or our answer to a request: nothing comes back but a status."""
        try:
            async with asyncio.timeout(TELL_SECONDS):
                leased = await self._post(session.fields, message)
        except TimeoutError as exc:
            raise Fault(Kind.UNAVAILABLE, f"{self._name} does not take what it is sent.") from exc
        try:
            if leased.response.status >= 400:
                raise status_fault(self._name, leased.response)
        finally:
            leased.release()

    def _tell_aside(self, session: UpstreamSession, method: str, params: Json) -> None:
        async def tell() -> None:
            with suppress(Fault):
                await self._tell(session, {"jsonrpc": "2.0", "method": method, "params": params})

        self._spawn(tell())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._aside.add(task)
        task.add_done_callback(self._aside.discard)
