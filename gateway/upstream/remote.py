"""A remote server behind the one small Protocol of every backend, whatever it is reached by."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from time import perf_counter_ns
from typing import Any, Final, Literal, Protocol

from mcp.types import CLIENT_CAPABILITIES_META_KEY, CLIENT_INFO_META_KEY, PROTOCOL_VERSION_META_KEY

from gateway.contract import (
    MODERN,
    BackendLists,
    Call,
    Caller,
    ClientProfile,
    IsolatedLists,
    Json,
    ListChange,
    Manifest,
    ResourceInterest,
)
from gateway.contract.trace_position import HTTP_TRACEPARENT, UpstreamHop
from gateway.errors import Fault, ForeignError, Kind
from gateway.telemetry.sampling import new_span_id
from gateway.upstream.breaker import Breaker
from gateway.upstream.bulkhead import Bulkhead, Capacity
from gateway.upstream.conversation import Conversation, MessageHandler
from gateway.upstream.health import UpstreamHealth, State
from gateway.upstream.lists import ChangeListener, ListSource, ListWatcher, read_lists
from gateway.upstream.resource_subscriptions import ResourceSubscriptions, SubscribableSession
from gateway.upstream.url_elicitation import in_handshake

Era = Literal["modern", "handshake"]
"""The revision without a handshake, or the ones before it."""

Transport = Literal["http", "sse", "stdio"]

NAMED: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
CLOSE_SECONDS: Final = 3600.0
_TROUBLE: Final = frozenset({Kind.UNAVAILABLE, Kind.TIMEOUT})
_NEARLY: Final = 0.99
"""Of its deadline: a call that is cancelled so late was cancelled by it."""


class UpstreamTransport(ListSource, SubscribableSession, Protocol):
    """A way to one server. Every method raises `Fault` when it cannot be reached, `ForeignError` when it refuses."""

    @property
    def transport(self) -> Transport: ...

    @property
    def address(self) -> tuple[str, int] | None:
        """Host and port, where it has them."""
        ...

    @property
    def own(self) -> "IsolatedSessions | None":
        """The servers that tenants or principals have to themselves; None: there is one for all."""
        ...

    @property
    def known(self) -> frozenset[Era] | None:
        """The eras it speaks, if that is known already."""
        ...

    def whose(self, call: Call) -> Hashable:
        """Equal for calls that fail together: those served by one process, or by one address."""
        ...

    async def eras(self) -> frozenset[Era]:
        """Which eras the server speaks: probed once, and again after `doubt`."""
        ...

    def doubt(self) -> None:
        """It could not be reached: what it speaks may have changed."""
        ...

    def carry(
        self, call: Call, era: Era, params: Json, talk: MessageHandler, trace: Mapping[str, str]
    ) -> Awaitable[Json]:
        """A client's call, in that era and within that trace."""
        ...

    async def listen(self, hearing: MessageHandler) -> None:
        """Hear of changes of its lists, until the server ends it."""
        ...

    def audience(self, caller: Caller) -> str | None:
        """Whom updates of resources concern that are said in this caller's session; None: whoever wants them."""
        ...

    async def close(self) -> None: ...


class IsolatedSessions(IsolatedLists, Protocol):
    """Servers that tenants or principals have to themselves, in whatever way the link keeps them apart."""

    def whose(self, caller: Caller) -> str:
        """The tenant or the principal that the caller's is for."""
        ...

    def on_change(self, listener: Callable[[ListChange], None]) -> None:
        """Tell `listener` what they say has changed, and whose."""
        ...


class RemoteBackend:
    """Asked in the client's own era when it speaks it, and bridged otherwise. Its annotations lower no effect."""

    trusted = False

    def __init__(
        self,
        namespace: str,
        manifest: Manifest,
        link: UpstreamTransport,
        info: Json,
        room: Capacity = Capacity(),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.namespace = namespace
        self.manifest = manifest
        self._link = link
        self._info = info
        self._clock = clock
        self._bulkhead = Bulkhead(namespace, room)
        self._breakers: dict[Hashable, Breaker] = {}
        self._listeners: list[Callable[[ListChange], None]] = []
        self._watches = ResourceSubscriptions(namespace, link, self._said)
        self._follower = ListWatcher(namespace, self._listen)
        self._unread = False
        """Whether its lists could not be read the last time."""
        self._active = 0
        self._closing = False
        self._idle = asyncio.Event()
        self._state: State = "unknown"
        self._since = time.time()
        self._last_error: tuple[Kind, float] | None = None
        if link.own is not None:
            link.own.on_change(self._changed)

    @property
    def isolated_lists(self) -> IsolatedLists | None:
        return self._link.own

    async def open(self) -> None:
        self._follower.start()

    async def close(self) -> None:
        """Once its last call is done, or after a while: a backend that is taken out drops no call."""
        await self._follower.stop()
        await self._watches.close()
        self._closing = True
        if self._active:
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self._idle.wait()
        await self._link.close()

    async def eras(self) -> frozenset[Era]:
        """Which it speaks, asked if need be."""
        return await self._link.eras()

    # ---- what it lists ----

    async def fetch_lists(self, caller: Caller | None) -> BackendLists:
        try:
            offered = await read_lists(self._link)
        except (Fault, asyncio.CancelledError) as exc:
            self._unread = True
            self._ailing(exc.kind if isinstance(exc, Fault) else Kind.TIMEOUT)
            raise
        self._unread = False
        self._turned("up")
        return offered

    # ---- a call ----

    async def send(self, call: Call) -> Json:
        whose, tenant = self._link.whose(call), call.caller.tenant
        breaker = self._breakers.get(whose)
        trial = breaker if breaker is not None and breaker.enter() else None
        hop = UpstreamHop(self.namespace, new_span_id(), self._link.transport, self._link.address)
        if not self._bulkhead.take(tenant):
            await self._queue(tenant, trial)
            hop.queued, hop.started = perf_counter_ns() - hop.started, perf_counter_ns()
        self._active += 1
        failures = breaker.failures if breaker is not None else 0
        try:
            result = await self._carry(call, hop, self._link.known or await self._link.eras())
        except Fault as fault:
            hop.failure, hop.message = fault.kind.value, fault.message
            self._failed(whose, failures, fault.kind)
            raise
        except asyncio.CancelledError:
            # By the deadline, or by the client, who may well know that it takes too long; only the former is told.
            ran = (perf_counter_ns() - hop.started) / 1e9 - call.wire.waited
            late = call.route is not None and ran >= call.route.timeout * _NEARLY
            hop.failure = "timeout" if late else "cancelled"
            self._failed(whose, failures, Kind.TIMEOUT if late else Kind.CANCELLED)
            raise
        except ForeignError as error:
            hop.failure, hop.code, hop.message = str(error.code), error.code, error.message
            self._recovered(whose)  # it answered
            raise
        finally:
            hop.ended = perf_counter_ns()
            self._bulkhead.leave(tenant)
            self._active -= 1
            if trial is not None:
                trial.left()
            if self._closing and not self._active:
                self._idle.set()
        if result.get("isError"):
            hop.failure = "tool_error"
        if self._state != "up" or self._breakers:
            self._recovered(whose)
        return result

    async def _queue(self, tenant: str, trial: Breaker | None) -> None:
        try:
            await self._bulkhead.wait(tenant)
        except BaseException:
            if trial is not None:
                trial.left()
            raise

    def _carry(self, call: Call, hop: UpstreamHop, eras: frozenset[Era]) -> Awaitable[Json]:
        """Not a coroutine itself: one fewer for every call."""
        link, client, route = self._link, call.client, call.route
        era = era_for(client, eras)
        trace = _below(call, hop)
        talk = Conversation(call, hop, self._bulkhead, self._said)
        params: Json = {**call.params, "_meta": talk.meta(era, trace, self._info)}
        if route is not None and (key := NAMED.get(call.method)) is not None:
            params[key] = route.name
        if era == "handshake" and client.modern:
            return in_handshake(params, partial(link.carry, call, era, talk=talk, trace=trace))
        return link.carry(call, era, params, talk, trace)

    # ---- how it is ----

    def health(self) -> UpstreamHealth:
        states = {breaker.state for breaker in self._breakers.values()}
        worst = "open" if "open" in states else "half-open" if "half-open" in states else "closed"
        error, at = self._last_error or (None, None)
        return UpstreamHealth(
            state="down" if worst == "open" else self._state,
            transport=self._link.transport,
            eras=tuple(sorted(self._link.known or ())),
            breaker=worst,
            in_flight=self._bulkhead.in_flight,
            waiting=self._bulkhead.waiting,
            last_error=error,
            last_error_at=at,
            since=self._since,
        )

    def _failed(self, whose: Hashable, seen: int, kind: Kind) -> None:
        """`seen`: how many failures there were when the call began. What breaks many calls at once counts once."""
        if kind not in _TROUBLE:
            return
        self._ailing(kind)
        self._link.doubt()
        breaker = self._breakers.get(whose)
        if breaker is None:
            breaker = self._breakers[whose] = Breaker(self.namespace, self._clock)
        if kind is Kind.TIMEOUT or breaker.failures <= seen:
            breaker.failed()

    def _recovered(self, whose: Hashable) -> None:
        self._breakers.pop(whose, None)
        self._turned("up")

    def _ailing(self, kind: Kind) -> None:
        self._last_error = (kind, time.time())
        self._turned("failing")

    def _turned(self, state: State) -> None:
        if state != self._state:
            self._state, self._since = state, time.time()

    # ---- what changes ----

    def on_change(self, listener: Callable[[ListChange], None]) -> None:
        self._listeners.append(listener)

    def _changed(self, change: ListChange) -> None:
        for listener in self._listeners:
            listener(change)

    def _said(self, change: ListChange, caller: Caller) -> None:
        """In that caller's session: it concerns whoever shares the session with it."""
        if change.kind == "resource":
            change = change._replace(owner=self._link.audience(caller))
        elif (own := self._link.own) is not None:
            change = change._replace(owner=own.whose(caller))
        self._changed(change)

    async def set_subscriptions(self, wants: Sequence[ResourceInterest]) -> None:
        await self._watches.want(wants)

    async def _listen(self) -> None:
        await self._link.eras()
        if self._unread:
            self._changed(ListChange("tools"))  # it is back: read what could not be read
        await self._link.listen(ChangeListener(self._changed))


def _below(call: Call, hop: UpstreamHop) -> Mapping[str, str]:
    """The trace as the server is to see it: within the hop's own span, where the call has one."""
    record, place = call.record, call.record.position
    if record.hops is None:
        record.hops = [hop]
    else:
        record.hops.append(hop)
    if place is None:
        return call.trace
    trace = {**call.trace, "traceparent": f"00-{place.trace_id}-{hop.span_id}-{'01' if place.sampled else '00'}"}
    trace.pop(HTTP_TRACEPARENT, None)
    return trace


def era_for(client: ClientProfile, eras: frozenset[Era]) -> Era:
    """The client's own where the server speaks it."""
    return "modern" if "modern" in eras and (client.modern or "handshake" not in eras) else "handshake"


def envelope(info: Json) -> Json:
    """The `_meta` of the gateway's own requests in the modern era: it can do nothing by itself."""
    return {PROTOCOL_VERSION_META_KEY: MODERN, CLIENT_CAPABILITIES_META_KEY: {}, CLIENT_INFO_META_KEY: info}


def listening(info: Json, uris: frozenset[str] | None = None) -> Json:
    """The params of `subscriptions/listen` for these resources, or for every list."""
    if uris is not None:
        return {"notifications": {"resourceSubscriptions": sorted(uris)}, "_meta": envelope(info)}
    flags: Json = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}
    return {"notifications": flags, "_meta": envelope(info)}


def speaks_modern(discovered: Json) -> bool:
    versions: Any = discovered.get("supportedVersions")
    return isinstance(versions, list) and MODERN in versions
