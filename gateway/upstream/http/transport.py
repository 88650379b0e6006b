"""The HTTP transport of remote servers, in either era, and its construction from a `backends:` entry with a `url:`."""

import asyncio
import ssl
from collections.abc import Awaitable, Hashable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from gateway.contract import Call, Caller, ClientProfile, DefinitionGuard, Json
from gateway.errors import Fault, ForeignError, Kind
from gateway.outbound import DIRECT, OutboundRoute, OutboundTarget, parse_target
from gateway.upstream.account_access import AccountAccess
from gateway.upstream.concurrency import SingleFlight
from gateway.upstream.conversation import LISTING_CAPABILITIES, MessageHandler, NullMessageHandler, capability_names
from gateway.upstream.health import LoadError
from gateway.upstream.http.account_lists import AccountLists
from gateway.upstream.http.legacy import EraNotSupported, LegacyHttp
from gateway.upstream.http.modern import ModernHttp
from gateway.upstream.http.pool import COMPARED, ConnectionPool, ServerReconnected
from gateway.upstream.http.request import LegacyRequest, RequestHead, SessionKey, encode_headers
from gateway.upstream.http.sse import SseHttp
from gateway.upstream.http.target import HttpTarget, UpstreamCredential
from gateway.upstream.lists import ChangeListener, read_lists
from gateway.upstream.remote import Era, TransportKind, era_for, gateway_meta, listen_params, speaks_modern

PROBE_SECONDS: Final = 20.0
_NO_CAPABILITIES: Final[frozenset[str]] = frozenset()
_GATEWAY_SESSION: Final[SessionKey] = ("", _NO_CAPABILITIES)
_NULL_HANDLER: Final = NullMessageHandler()


class LegacyTransport(Protocol):
    """One of the two HTTP transports of the handshake era. Sessions are opened on demand."""

    async def initialize(self, session_key: SessionKey, capabilities: Json) -> Json: ...

    async def request(self, request: LegacyRequest) -> Json: ...

    async def listen(self, session_key: SessionKey, handler: MessageHandler) -> None: ...

    async def subscribe(
        self, session_key: SessionKey, capabilities: Json, uris: frozenset[str], listener: ChangeListener
    ) -> None:
        """Subscribe in that session and pass updates to `listener` until its stream ends."""
        ...

    async def close(self) -> None: ...


class HttpTransport:
    """`gateway.upstream.remote.UpstreamTransport`. Without `streamable`, the server uses the SSE transport only."""

    def __init__(
        self,
        name: str,
        target: HttpTarget,
        modern: ModernHttp,
        streamable: LegacyTransport | None,
        sse: LegacyTransport,
        info: Json,
        address: tuple[str, int] | None = None,
        accounts: AccountAccess | None = None,
    ) -> None:
        self._name = name
        self.address = address
        self._target = target
        self._modern = modern
        self._streamable = streamable
        self._sse = sse
        self._handshake = streamable or sse
        self._info = info
        self._has_accounts = accounts is not None
        self._probe_once = SingleFlight(partial(self._probe_with_timeout, ""))
        self._compare_once = SingleFlight(self._compare)
        self._compared_epoch = -1
        self._guard: DefinitionGuard | None = None
        self.known_eras: frozenset[Era] | None = None
        self.isolated = AccountLists(self, accounts) if accounts is not None else None
        """With accounts, each principal has sessions and lists of its own. Without, all share the gateway's."""

    def guard_definitions(self, guard: DefinitionGuard) -> None:
        self._guard = guard
        self._target.pool.guarded = True

    @property
    def kind(self) -> TransportKind:
        return "sse" if self._handshake is self._sse else "http"

    def failure_domain(self, call: Call) -> Hashable:
        # What an account may do differs between principals, so their failures must not reject each other's calls.
        return call.caller.principal if self._has_accounts else None

    async def eras(self, caller: Caller | None = None) -> frozenset[Era]:
        """The eras that the server supports. With accounts, a server may answer only requests of an account."""
        if self.known_eras is not None:
            return self.known_eras
        if self._has_accounts and caller is not None:
            return await self._probe_with_timeout(caller.principal)
        return await self._probe_once()

    def invalidate_eras(self) -> None:
        self.known_eras = None

    async def _probe_with_timeout(self, owner: str) -> frozenset[Era]:
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                self.known_eras = found = await self._probe((owner, _NO_CAPABILITIES))
        except TimeoutError as exc:
            raise Fault(Kind.UNAVAILABLE, f"{self._name} did not respond within {PROBE_SECONDS:g} s.") from exc
        return found

    async def _probe(self, session_key: SessionKey) -> frozenset[Era]:
        found: set[Era] = set()
        if self._streamable is None:
            await self._sse.initialize(_GATEWAY_SESSION, LISTING_CAPABILITIES)
            return frozenset({"handshake"})
        try:
            if speaks_modern(await self._request_modern("server/discover", {}, session_key[0])):
                found.add("modern")
        except ForeignError:
            pass
        except Fault as fault:
            # A handshake-era server may reply with a plain status, which is not conclusive.
            if fault.kind is not Kind.UNAVAILABLE:
                raise
        try:
            await self._initialize(self._streamable, session_key)
            found.add("handshake")
        except (Fault, ForeignError):
            if not found:
                raise
        return frozenset(found)

    async def _initialize(self, streamable: LegacyTransport, session_key: SessionKey) -> None:
        """Initialize by POST, and with the SSE transport if the server does not support that."""
        try:
            await streamable.initialize(session_key, LISTING_CAPABILITIES)
            self._handshake = streamable
        except EraNotSupported as error:
            if self._has_accounts:
                raise  # the SSE transport does not send the credentials of accounts
            try:
                await self._sse.initialize(_GATEWAY_SESSION, LISTING_CAPABILITIES)
                self._handshake = self._sse
            except (Fault, ForeignError):
                raise error from None

    async def probe(self) -> None:
        await self._probe_once()

    async def discover(self) -> Json:
        return await self.discover_for(None)

    async def request(self, method: str, params: Json) -> Json:
        return await self.request_for(None, method, params)

    async def discover_for(self, caller: Caller | None) -> Json:
        """As `discover`, with the account of this caller."""
        owner = caller.principal if caller is not None else ""
        if "modern" in await self.eras(caller):
            return await self._request_modern("server/discover", {}, owner)
        return await self._handshake.initialize((owner, _NO_CAPABILITIES), LISTING_CAPABILITIES)

    async def request_for(self, caller: Caller | None, method: str, params: Json) -> Json:
        """As `request`, with the account of this caller."""
        owner = caller.principal if caller is not None else ""
        if "modern" in await self.eras(caller):
            return await self._request_modern(method, params, owner)
        session_key: SessionKey = (owner, _NO_CAPABILITIES)
        return await self._handshake.request(
            LegacyRequest(session_key, LISTING_CAPABILITIES, method, params, _NULL_HANDLER)
        )

    async def _request_modern(self, method: str, params: Json, owner: str) -> Json:
        meta = {**params, "_meta": gateway_meta(self._info)}
        return await self._modern.request(method, meta, _NULL_HANDLER, owner=owner)

    def send(
        self, call: Call, era: Era, params: Json, handler: MessageHandler, trace: Mapping[str, str]
    ) -> Awaitable[Json]:
        if self._guard is not None and call.method == "tools/call":
            return self._send_compared(self._guard, call, era, params, handler, trace)
        return self._send(call, era, params, handler, trace)

    async def _send_compared(
        self,
        guard: DefinitionGuard,
        call: Call,
        era: Era,
        params: Json,
        handler: MessageHandler,
        trace: Mapping[str, str],
    ) -> Json:
        """Compare the definitions before the first call after a connection was opened while there was no other."""
        pool = self._target.pool
        if pool.has_open and pool.epoch == self._compared_epoch:
            guard.check(call)
            # Raised before the request was sent.
            with suppress(ServerReconnected):
                return await self._send(call, era, params, handler, trace)
        await self._compare_once()
        guard.check(call)
        compared = COMPARED.set(True)
        try:
            return await self._send(call, era, params, handler, trace)
        finally:
            COMPARED.reset(compared)

    async def _compare(self) -> None:
        assert self._guard is not None
        await self._guard.compare(None, partial(read_lists, self))
        self._compared_epoch = self._target.pool.epoch

    def _send(
        self, call: Call, era: Era, params: Json, handler: MessageHandler, trace: Mapping[str, str]
    ) -> Awaitable[Json]:
        headers = _trace_headers(call.id, trace)
        if era == "modern":
            schema = call.route.header_schema if call.route else None
            owner = call.caller.principal if self._has_accounts else ""
            return self._modern.request(call.method, params, handler, headers, schema, owner)
        capabilities = call.client.capabilities
        session_key: SessionKey = (
            call.caller.principal,
            capability_names(capabilities) if capabilities else _NO_CAPABILITIES,
        )
        return self._handshake.request(
            LegacyRequest(
                session_key,
                capabilities,
                call.method,
                params,
                handler,
                headers,
                call.client.log_level,
                call.upstream_session,
            )
        )

    def task_session(self, call: Call) -> str:
        if era_for(call.client, self.known_eras or frozenset()) == "modern":
            return ""
        if not isinstance(self._handshake, LegacyHttp):
            return "worker"
        return self._handshake.session_of((call.caller.principal, capability_names(call.client.capabilities)))

    async def listen(self, handler: MessageHandler) -> None:
        if "modern" in await self.eras():
            await self._modern.request("subscriptions/listen", listen_params(self._info), handler)
        else:
            await self._handshake.listen(_GATEWAY_SESSION, handler)

    def session_owner(self, caller: Caller) -> str | None:
        return caller.principal

    def subscription_key(self, caller: Caller, client: ClientProfile) -> Hashable:
        return caller.principal, client.modern, capability_names(client.capabilities)

    async def subscribe(
        self, caller: Caller, client: ClientProfile, uris: frozenset[str], listener: ChangeListener
    ) -> None:
        if era_for(client, await self.eras(caller)) == "modern":
            owner = caller.principal if self._has_accounts else ""
            await self._modern.request("subscriptions/listen", listen_params(self._info, uris), listener, owner=owner)
        else:
            session_key: SessionKey = (caller.principal, capability_names(client.capabilities))
            await self._handshake.subscribe(session_key, client.capabilities, uris, listener)

    async def close(self) -> None:
        for legacy in (self._streamable, self._sse):
            if legacy is not None:
                await legacy.close()
        await self._target.close()


def _trace_headers(id: str, trace: Mapping[str, str]) -> bytes:
    """Encode the correlation id and the trace context as header lines."""
    if len(trace) == 1 and (parent := trace.get("traceparent")) is not None:
        return f"x-correlation-id: {id}\r\ntraceparent: {parent}\r\n".encode("latin-1")  # fast path
    return encode_headers((("x-correlation-id", id), *trace.items()))


def build_request_head(
    namespace: str, url: str, headers: Mapping[str, str], *, allow_private: bool
) -> tuple[OutboundTarget, RequestHead]:
    """Parse the URL and encode the fixed headers. Raises `LoadError`."""
    try:
        destination = parse_target(url, allow_private=allow_private)
        return destination, RequestHead(destination, headers)
    except Fault as fault:
        raise LoadError(f"backends.{namespace}.url: {fault.message}") from fault
    except ValueError as exc:
        raise LoadError(f"backends.{namespace}.headers: {exc}") from exc


def build_http_transport(
    namespace: str,
    url: str,
    headers: Mapping[str, str],
    *,
    only_sse: bool,
    allow_private: bool,
    max_bytes: int,
    info: Json,
    credential: UpstreamCredential | None = None,
    accounts: AccountAccess | None = None,
    route: OutboundRoute = DIRECT,
    ca_file: Path | None = None,
) -> HttpTransport:
    """Create the transport of a `backends:` entry. Raises `LoadError` for an invalid URL, header or CA file."""
    destination, head = build_request_head(namespace, url, headers, allow_private=allow_private)
    tls = load_tls(namespace, route, ca_file) if destination.scheme == "https" else None
    pool = ConnectionPool(namespace, destination, max_bytes=max_bytes, tls=tls, route=route)
    target = HttpTarget(pool, head, credential, accounts.credential if accounts is not None else None)
    streamable = None if only_sse else LegacyHttp(namespace, target, max_bytes, info)
    sse = SseHttp(namespace, target, destination, max_bytes, info)
    return HttpTransport(
        namespace,
        target,
        ModernHttp(namespace, target, max_bytes),
        streamable,
        sse,
        info,
        (destination.host, destination.port),
        accounts,
    )


def load_tls(namespace: str, route: OutboundRoute, ca_file: Path | None) -> ssl.SSLContext:
    try:
        return route.tls(ca_file)
    except (OSError, ssl.SSLError) as exc:
        raise LoadError(f"backends.{namespace}.ca_file: it cannot be read as certificates in PEM format") from exc
