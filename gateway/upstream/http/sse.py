"""The transport of 2024-11-05: one event stream a session, which names the address that messages are posted to."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, cast
from urllib.parse import urljoin

import msgspec

from gateway.contract import Json
from gateway.errors import Fault, Kind
from gateway.outbound import OutboundTarget, target
from gateway.sse import EventTooLarge, SseEvent, SseParser
from gateway.upstream.channel_pool import ChannelPool, Whose
from gateway.upstream.concurrency import StartLimiter
from gateway.upstream.conversation import MessageHandler
from gateway.upstream.http.pool import LeasedConnection
from gateway.upstream.http.request import LegacyRequest, Who
from gateway.upstream.http.responses import status_fault
from gateway.upstream.http.target import HttpTarget
from gateway.upstream.jsonrpc_channel import DuplexStream, JsonRpcChannel
from gateway.upstream.lists import ChangeListener

log = logging.getLogger("gatehouse.upstream")

MAX_SESSIONS: Final = 256
ENDPOINT_SECONDS: Final = 10.0
POST_SECONDS: Final = 30.0
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder().decode


class SessionLost(Fault):
    """The server does not know the session any more; it did not carry the request out."""

    def __init__(self, name: str) -> None:
        super().__init__(Kind.UNAVAILABLE, f"{name} forgot its session.")


class EventChannel:
    """One session: what the server says comes by its stream, what we say is posted."""

    def __init__(self, name: str, site: HttpTarget, there: OutboundTarget, leased: LeasedConnection) -> None:
        self._name = name
        self._site = site
        self._there = there
        self._leased = leased
        self._posts: asyncio.Future[HttpTarget] = asyncio.get_running_loop().create_future()
        self._reading: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls,
        name: str,
        site: HttpTarget,
        there: OutboundTarget,
        max_bytes: int,
        heard: Callable[[Json], None],
        ended: Callable[[], None],
    ) -> "EventChannel":
        """Raises `Fault(UNAVAILABLE)` when the server has no such stream, or does not say where to post."""
        try:
            async with asyncio.timeout(ENDPOINT_SECONDS):
                leased = await site.bare("GET", b"")
                if leased.response.status != 200 or leased.response.body is not None:
                    leased.release()
                    raise status_fault(name, leased.response)
                channel = cls(name, site, there, leased)
                channel._reading = asyncio.create_task(channel._read(max_bytes, heard, ended), name=f"sse:{name}")
                try:
                    await asyncio.shield(channel._posts)
                except BaseException:
                    await channel.stop()
                    raise
        except TimeoutError as exc:
            raise Fault(Kind.UNAVAILABLE, f"{name} does not answer.") from exc
        return channel

    async def write(self, message: Json) -> None:
        site = self._posts.result()
        try:
            async with asyncio.timeout(POST_SECONDS):
                leased = await site.post(b"", _encode(message))
        except TimeoutError as exc:
            raise Fault(Kind.UNAVAILABLE, f"{self._name} does not take what it is sent.") from exc
        try:
            if leased.response.status in (404, 410):
                raise SessionLost(self._name)
            if leased.response.status >= 300:
                raise status_fault(self._name, leased.response)
        finally:
            leased.release()

    async def stop(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            with suppress(asyncio.CancelledError):
                await self._reading

    async def _read(self, max_bytes: int, heard: Callable[[Json], None], ended: Callable[[], None]) -> None:
        parser, response = SseParser(max_bytes), self._leased.response
        try:
            while piece := await response.chunk():
                for event in parser.feed(piece):
                    self._take(event, heard)
        except Fault as fault:
            log.info("%s: its stream broke off: %s", self._name, fault.message)
            self._no_posts(fault)
        except EventTooLarge:
            log.warning("%s sent a message of more than %d bytes; its session is ended", self._name, max_bytes)
        finally:
            self._no_posts(Fault(Kind.UNAVAILABLE, f"{self._name} does not say where messages go."))
            self._leased.release()
            ended()

    def _take(self, event: SseEvent, heard: Callable[[Json], None]) -> None:
        if event.name == "endpoint":
            if not self._posts.done():
                self._posts.set_result(self._site.at(self._address(event.data)))
        elif event.name == "message":
            try:
                message: Any = _decode(event.data)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                message = None
            if isinstance(message, dict):
                heard(cast("Json", message))
            else:
                log.debug("%s said something else than JSON-RPC", self._name)

    def _address(self, given: bytes) -> str:
        """The path to post to. Only on the server itself: a stream may not send our words and credentials elsewhere."""
        there = self._there
        host = f"[{there.host}]" if ":" in there.host else there.host
        base = f"{there.scheme}://{host}:{there.port}{there.path}"
        try:
            named = target(urljoin(base, given.decode(errors="replace").strip()), allow_private=there.vouched)
        except ValueError as exc:
            raise Fault(Kind.UNAVAILABLE, f"{self._name} wants its messages posted to no address.") from exc
        if (named.scheme, named.host, named.port) != (there.scheme, there.host, there.port):
            raise Fault(Kind.UNAVAILABLE, f"{self._name} wants its messages posted to another server.")
        return named.path

    def _no_posts(self, fault: Fault) -> None:
        if not self._posts.done():
            self._posts.set_exception(fault)
            self._posts.exception()  # looked at: the one who waits may be gone


class SseHttp:
    """One server, asked by the older transport: a session for each principal."""

    def __init__(self, name: str, site: HttpTarget, there: OutboundTarget, max_bytes: int, info: Json) -> None:
        async def connect(heard: Callable[[Json], None], ended: Callable[[], None]) -> DuplexStream:
            return await EventChannel.open(name, site, there, max_bytes, heard, ended)

        self._pipes = ChannelPool(
            name, lambda: JsonRpcChannel(name, connect, info, alone=True), MAX_SESSIONS, StartLimiter(MAX_SESSIONS)
        )

    async def greeting(self, who: Who, capabilities: Json) -> Json:
        return (await self._pipe(who, capabilities)).greeting

    async def request(self, asked: LegacyRequest) -> Json:
        """The result, in that principal's session. A session the server forgot is made anew, once."""
        try:
            return await self._request(asked)
        except SessionLost:
            return await self._request(asked)

    async def listen(self, who: Who, talk: MessageHandler) -> None:
        pipe = await self._pipe(who, {})
        pipe.hear(talk)
        await pipe.gone.wait()

    async def hear(self, who: Who, capabilities: Json, uris: frozenset[str], hearing: ChangeListener) -> None:
        pipe = await self._pipe(who, capabilities)
        try:
            await pipe.watch(uris, hearing)
        except SessionLost:
            await pipe.stop()
            raise

    async def close(self) -> None:
        await self._pipes.close()

    async def _request(self, asked: LegacyRequest) -> Json:
        pipe = await self._pipe(asked.who, asked.capabilities)
        try:
            await pipe.speak_up(asked.level)
            return await pipe.request(asked.method, asked.params, asked.talk)
        except SessionLost:
            await pipe.stop()
            raise

    async def _pipe(self, who: Who, capabilities: Json) -> JsonRpcChannel:
        principal, names = who
        whose: Whose = (principal, names) if principal else ()
        return await self._pipes.get(whose, capabilities, "handshake")
