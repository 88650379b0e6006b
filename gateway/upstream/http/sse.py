"""The SSE transport of revision 2024-11-05: one event stream per session, which names the URL to post messages to."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, cast
from urllib.parse import urljoin

import msgspec

from gateway.contract import Json
from gateway.errors import Fault, Kind
from gateway.outbound import OutboundTarget, parse_target
from gateway.sse import EventTooLarge, SseEvent, SseParser
from gateway.upstream.channel_pool import ChannelKey, ChannelPool
from gateway.upstream.concurrency import StartLimiter
from gateway.upstream.conversation import MessageHandler
from gateway.upstream.http.pool import LeasedConnection
from gateway.upstream.http.request import LegacyRequest, SessionKey
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
    """The server no longer knows the session; it did not execute the request."""

    def __init__(self, name: str) -> None:
        super().__init__(Kind.UNAVAILABLE, f"{name} no longer knows the session. Try again.")


class EventChannel:
    """One session: messages are read from its event stream and sent by POST."""

    def __init__(self, name: str, target: HttpTarget, destination: OutboundTarget, leased: LeasedConnection) -> None:
        self._name = name
        self._target = target
        self._destination = destination
        self._leased = leased
        self._post_target: asyncio.Future[HttpTarget] = asyncio.get_running_loop().create_future()
        self._reading: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls,
        name: str,
        target: HttpTarget,
        destination: OutboundTarget,
        max_bytes: int,
        on_message: Callable[[Json], None],
        on_close: Callable[[], None],
    ) -> "EventChannel":
        """Open a session. Raises `Fault(UNAVAILABLE)` when the server sends no event stream or no endpoint event."""
        try:
            async with asyncio.timeout(ENDPOINT_SECONDS):
                leased = await target.send_without_body("GET", b"")
                if leased.response.status != 200 or leased.response.body is not None:
                    leased.release()
                    raise status_fault(name, leased.response)
                channel = cls(name, target, destination, leased)
                channel._reading = asyncio.create_task(
                    channel._read(max_bytes, on_message, on_close), name=f"sse:{name}"
                )
                try:
                    await asyncio.shield(channel._post_target)
                except BaseException:
                    await channel.stop()
                    raise
        except TimeoutError as exc:
            raise Fault(Kind.UNAVAILABLE, f"{name} did not respond within {ENDPOINT_SECONDS:g} s.") from exc
        return channel

    async def write(self, message: Json) -> None:
        target = self._post_target.result()
        try:
            async with asyncio.timeout(POST_SECONDS):
                leased = await target.post(b"", _encode(message))
        except TimeoutError as exc:
            raise Fault(Kind.UNAVAILABLE, f"{self._name} did not accept a message within {POST_SECONDS:g} s.") from exc
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

    async def _read(self, max_bytes: int, on_message: Callable[[Json], None], on_close: Callable[[], None]) -> None:
        parser, response = SseParser(max_bytes), self._leased.response
        try:
            while chunk := await response.read():
                for event in parser.feed(chunk):
                    self._handle_event(event, on_message)
        except Fault as fault:
            log.info("upstream %s: event stream failed; the session ends: %s", self._name, fault.message)
            self._fail_post_target(fault)
        except EventTooLarge:
            log.warning("upstream %s: message exceeds %d bytes; the session ends", self._name, max_bytes)
        finally:
            self._fail_post_target(Fault(Kind.UNAVAILABLE, f"{self._name} sent no endpoint event."))
            self._leased.release()
            on_close()

    def _handle_event(self, event: SseEvent, on_message: Callable[[Json], None]) -> None:
        if event.name == "endpoint":
            if not self._post_target.done():
                self._post_target.set_result(self._target.with_path(self._post_path(event.data)))
        elif event.name == "message":
            try:
                message: Any = _decode(event.data)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                message = None
            if isinstance(message, dict):
                on_message(cast("Json", message))
            else:
                log.debug("upstream %s: event without a JSON-RPC message; ignored", self._name)

    def _post_path(self, endpoint: bytes) -> str:
        """Return the path to post to. Only on the same server: messages and credentials must not go elsewhere."""
        destination = self._destination
        host = f"[{destination.host}]" if ":" in destination.host else destination.host
        base = f"{destination.scheme}://{host}:{destination.port}{destination.path}"
        try:
            endpoint_target = parse_target(
                urljoin(base, endpoint.decode(errors="replace").strip()), allow_private=destination.is_trusted
            )
        except ValueError as exc:
            raise Fault(Kind.UNAVAILABLE, f"{self._name} named an invalid endpoint URL.") from exc
        if (endpoint_target.scheme, endpoint_target.host, endpoint_target.port) != (
            destination.scheme,
            destination.host,
            destination.port,
        ):
            raise Fault(Kind.UNAVAILABLE, f"{self._name} named an endpoint on another server.")
        return endpoint_target.path

    def _fail_post_target(self, fault: Fault) -> None:
        if not self._post_target.done():
            self._post_target.set_exception(fault)
            self._post_target.exception()  # mark as retrieved: the waiting task may have been cancelled


class SseHttp:
    """SSE transport client of one server, with one session per principal."""

    def __init__(self, name: str, target: HttpTarget, destination: OutboundTarget, max_bytes: int, info: Json) -> None:
        async def connect(on_message: Callable[[Json], None], on_close: Callable[[], None]) -> DuplexStream:
            return await EventChannel.open(name, target, destination, max_bytes, on_message, on_close)

        self._channels = ChannelPool(
            name,
            lambda: JsonRpcChannel(name, connect, info, single_caller=True),
            MAX_SESSIONS,
            StartLimiter(MAX_SESSIONS),
        )

    async def initialize(self, session_key: SessionKey, capabilities: Json) -> Json:
        return (await self._channel(session_key, capabilities)).discovery

    async def request(self, request: LegacyRequest) -> Json:
        """Send a request in the principal's session. Opens a new session, once, if the server lost it."""
        try:
            return await self._request(request)
        except SessionLost:
            return await self._request(request)

    async def listen(self, session_key: SessionKey, handler: MessageHandler) -> None:
        channel = await self._channel(session_key, {})
        channel.set_handler(handler)
        await channel.closed.wait()

    async def subscribe(
        self, session_key: SessionKey, capabilities: Json, uris: frozenset[str], listener: ChangeListener
    ) -> None:
        channel = await self._channel(session_key, capabilities)
        try:
            await channel.subscribe(uris, listener)
        except SessionLost:
            await channel.stop()
            raise

    async def close(self) -> None:
        await self._channels.close()

    async def _request(self, request: LegacyRequest) -> Json:
        channel = await self._channel(request.session_key, request.capabilities)
        try:
            await channel.set_log_level(request.log_level)
            return await channel.request(request.method, request.params, request.handler)
        except SessionLost:
            await channel.stop()
            raise

    async def _channel(self, session_key: SessionKey, capabilities: Json) -> JsonRpcChannel:
        principal, names = session_key
        key: ChannelKey = (principal, names) if principal else ()
        return await self._channels.get(key, capabilities, "handshake")
