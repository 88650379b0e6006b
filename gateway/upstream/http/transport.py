"""The way to a server over HTTP, in either era.

From an entry with a `url:` to the way to its server.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Hashable, Mapping
from typing import Final, Protocol

from gateway.contract import Call, Caller, ClientProfile, Json
from gateway.errors import Fault, ForeignError, Kind
from gateway.outbound import OutboundTarget, target
from gateway.upstream.concurrency import SingleFlight
from gateway.upstream.conversation import ABLE, MessageHandler, NullMessageHandler, abilities
from gateway.upstream.health import LoadError
from gateway.upstream.http.legacy import EraNotSupported, LegacyHttp
from gateway.upstream.http.modern import ModernHttp
from gateway.upstream.http.pool import ConnectionPool
from gateway.upstream.http.request import LegacyRequest, RequestHead, Who, fields
from gateway.upstream.http.sse import SseHttp
from gateway.upstream.http.target import HttpTarget, UpstreamCredential
from gateway.upstream.lists import ChangeListener
from gateway.upstream.remote import Era, Transport, envelope, era_for, listening, speaks_modern

PROBE_SECONDS: Final = 20.0

_NOTHING: Final[frozenset[str]] = frozenset()

_OURSELVES: Final[Who] = ("", _NOTHING)

_NOBODY: Final = NullMessageHandler()


class LegacyTransport(Protocol):
    """The handshake era, by either of its transports: sessions that are made as they are needed."""

    async def greeting(self, who: Who, capabilities: Json) -> Json: ...

    async def request(self, asked: LegacyRequest) -> Json: ...

    async def listen(self, who: Who, talk: MessageHandler) -> None: ...

    async def hear(self, who: Who, capabilities: Json, uris: frozenset[str], hearing: ChangeListener) -> None:
        """Subscribe in that session, and hear of updates until its stream ends."""
        ...

    async def close(self) -> None: ...


class HttpTransport:
    """`gateway.upstream.remote.Link`. Without `streamable` the server is known to be of the older transport."""

    def __init__(
        self,
        name: str,
        site: HttpTarget,
        modern: ModernHttp,
        streamable: LegacyTransport | None,
        older: LegacyTransport,
        info: Json,
        address: tuple[str, int] | None = None,
    ) -> None:
        self._name = name
        self.address = address
        self._site = site
        self._modern = modern
        self._streamable = streamable
        self._older = older
        self._handshake = streamable or older
        self._info = info
        self._probing = SingleFlight(self._find_out)
        self.known: frozenset[Era] | None = None

    own = None
    """All its principals speak to one server, with the gateway's own credential."""

    @property
    def transport(self) -> Transport:
        return "sse" if self._handshake is self._older else "http"

    def whose(self, call: Call) -> Hashable:
        return None

    async def eras(self) -> frozenset[Era]:
        return self.known if self.known is not None else await self._probing()

    def doubt(self) -> None:
        self.known = None

    async def _find_out(self) -> frozenset[Era]:
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                self.known = found = await self._probe()
        except TimeoutError as exc:
            raise Fault(Kind.UNAVAILABLE, f"{self._name} does not answer.") from exc
        return found

    async def _probe(self) -> frozenset[Era]:
        found: set[Era] = set()
        if self._streamable is None:
            await self._older.greeting(_OURSELVES, ABLE)
            return frozenset({"handshake"})
        try:
            if speaks_modern(await self._ask_modern("server/discover", {})):
                found.add("modern")
        except ForeignError:
            pass
        except Fault as fault:
            # An older server may answer with a bare status, which alone says nothing.
            if fault.kind is not Kind.UNAVAILABLE:
                raise
        try:
            await self._greet(self._streamable)
            found.add("handshake")
        except (Fault, ForeignError):
            if not found:
                raise
        return frozenset(found)

    async def _greet(self, streamable: LegacyTransport) -> None:
        """By POST; a server that has no ear for that is asked for its stream, as servers of old expect it."""
        try:
            await streamable.greeting(_OURSELVES, ABLE)
            self._handshake = streamable
        except EraNotSupported as refused:
            try:
                await self._older.greeting(_OURSELVES, ABLE)
                self._handshake = self._older
            except (Fault, ForeignError):
                raise refused from None

    async def hello(self) -> Json:
        if "modern" in await self.eras():
            return await self._ask_modern("server/discover", {})
        return await self._handshake.greeting(_OURSELVES, ABLE)

    async def ask(self, method: str, params: Json) -> Json:
        if "modern" in await self.eras():
            return await self._ask_modern(method, params)
        return await self._handshake.request(LegacyRequest(_OURSELVES, ABLE, method, params, _NOBODY))

    async def _ask_modern(self, method: str, params: Json) -> Json:
        return await self._modern.request(method, {**params, "_meta": envelope(self._info)}, _NOBODY)

    def carry(
        self, call: Call, era: Era, params: Json, talk: MessageHandler, trace: Mapping[str, str]
    ) -> Awaitable[Json]:
        lines = _named(call.id, trace)
        if era == "modern":
            schema = call.route.header_schema if call.route else None
            return self._modern.request(call.method, params, talk, lines, schema)
        able = call.client.capabilities
        who: Who = (call.caller.principal, abilities(able) if able else _NOTHING)
        return self._handshake.request(
            LegacyRequest(who, able, call.method, params, talk, lines, call.client.log_level)
        )

    async def listen(self, hearing: MessageHandler) -> None:
        if "modern" in await self.eras():
            await self._modern.request("subscriptions/listen", listening(self._info), hearing)
        else:
            await self._handshake.listen(_OURSELVES, hearing)

    def audience(self, caller: Caller) -> str | None:
        return caller.principal

    def party(self, caller: Caller, client: ClientProfile) -> Hashable:
        return caller.principal, client.modern, abilities(client.capabilities)

    async def hear(self, caller: Caller, client: ClientProfile, uris: frozenset[str], hearing: ChangeListener) -> None:
        if era_for(client, await self.eras()) == "modern":
            await self._modern.request("subscriptions/listen", listening(self._info, uris), hearing)
        else:
            who: Who = (caller.principal, abilities(client.capabilities))
            await self._handshake.hear(who, client.capabilities, uris, hearing)

    async def close(self) -> None:
        for way in (self._streamable, self._older):
            if way is not None:
                await way.close()
        await self._site.close()


def _named(id: str, trace: Mapping[str, str]) -> bytes:
    """The headers that name a call and its trace."""
    if len(trace) == 1 and (parent := trace.get("traceparent")) is not None:
        return f"x-correlation-id: {id}\r\ntraceparent: {parent}\r\n".encode("latin-1")  # as a rule
    return fields((("x-correlation-id", id), *trace.items()))


def http_head(
    namespace: str, url: str, headers: Mapping[str, str], *, allow_private: bool
) -> tuple[OutboundTarget, RequestHead]:
    """Where requests go and what each of them begins with. Raises `LoadError`."""
    try:
        there = target(url, allow_private=allow_private)
        return there, RequestHead(there, headers)
    except Fault as fault:
        raise LoadError(f"backends.{namespace}.url: {fault.message}") from fault
    except ValueError as exc:
        raise LoadError(f"backends.{namespace}.headers: {exc}") from exc


def http_link(
    namespace: str,
    url: str,
    headers: Mapping[str, str],
    *,
    only_sse: bool,
    allow_private: bool,
    max_bytes: int,
    info: Json,
    credential: UpstreamCredential | None = None,
) -> HttpTransport:
    """Raises `LoadError` for an address or a header that cannot be used."""
    there, head = http_head(namespace, url, headers, allow_private=allow_private)
    tls = ssl.create_default_context() if there.scheme == "https" else None
    site = HttpTarget(ConnectionPool(namespace, there, max_bytes=max_bytes, tls=tls), head, credential)
    streamable = None if only_sse else LegacyHttp(namespace, site, max_bytes, info)
    older = SseHttp(namespace, site, there, max_bytes, info)
    return HttpTransport(
        namespace, site, ModernHttp(namespace, site, max_bytes), streamable, older, info, (there.host, there.port)
    )
