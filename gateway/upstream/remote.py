"""The `Backend` implementation for remote servers, over any transport.

Combines a transport with the circuit breakers, the bulkhead, the list watcher and the resource subscriptions.
Failures count in the breaker; only `http/pool.py` may send a request twice.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from time import perf_counter_ns
from types import CoroutineType
from typing import Any, Final, Literal, Protocol

from mcp.types import CLIENT_CAPABILITIES_META_KEY, CLIENT_INFO_META_KEY, PROTOCOL_VERSION_META_KEY

from gateway.contract import (
    MODERN,
    BackendLists,
    Call,
    Caller,
    ClientProfile,
    DefinitionGuard,
    IsolatedLists,
    Json,
    ListChange,
    Manifest,
    ResourceInterest,
    declares_tasks,
)
from gateway.contract.trace_position import HTTP_TRACEPARENT, UpstreamHop, new_span_id
from gateway.errors import Fault, ForeignError, Kind
from gateway.upstream.account_access import AccountAccess, AccountRequired, add_note, ask_for_account, without_answers
from gateway.upstream.breaker import Breakers, FailureCounts
from gateway.upstream.bulkhead import Bulkhead, Capacity
from gateway.upstream.conversation import Conversation, MessageHandler
from gateway.upstream.health import State, UpstreamCredentialRejected, UpstreamHealth
from gateway.upstream.lists import ChangeListener, ListSource, ListWatcher, read_lists
from gateway.upstream.resource_subscriptions import ResourceSubscriptions, SubscribableSession
from gateway.upstream.task_completion import adapt_to_tasks, complete_task
from gateway.upstream.url_elicitation import call_handshake_server

Era = Literal["modern", "handshake"]
"""`modern`: protocol revision 2026-07-28, without handshake. `handshake`: the earlier revisions."""

TransportKind = Literal["http", "sse", "stdio"]

NAME_PARAMS: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
CLOSE_SECONDS: Final = 3600.0
_BREAKER_KINDS: Final = frozenset({Kind.UNAVAILABLE, Kind.TIMEOUT})
_NO_FAILURES: Final = FailureCounts()
_ERA_PROBE_INTERVAL: Final = 5.0
"""Minimum seconds between two probes of the eras because of failed calls: every caller waits for such a probe."""
_DEADLINE_SHARE: Final = 0.99
"""A call that is cancelled after this share of its timeout counts as timed out."""


class UpstreamTransport(ListSource, SubscribableSession, Protocol):
    """Transport to one server. Methods raise `Fault` when it cannot be reached, `ForeignError` for its own errors."""

    @property
    def kind(self) -> TransportKind: ...

    @property
    def address(self) -> tuple[str, int] | None:
        """Host and port, if the transport has them."""
        ...

    @property
    def isolated(self) -> "IsolatedSessions | None":
        """The isolated sessions of tenants or principals; None if all share one server."""
        ...

    @property
    def known_eras(self) -> frozenset[Era] | None:
        """The eras that the server supports; None until probed."""
        ...

    def failure_domain(self, call: Call) -> Hashable:
        """Equal for calls served by the same process or address: they share a circuit breaker."""
        ...

    def guard_definitions(self, guard: DefinitionGuard) -> None:
        """Ask the guard before each `tools/call`, and have it compare a started or reconnected server first."""
        ...

    async def probe(self) -> None:
        """Check by a request of the gateway's own that the server answers. Raises `Fault` or `TimeoutError` if not."""
        ...

    async def eras(self, caller: Caller | None = None) -> frozenset[Era]:
        """Return the eras that the server supports: probed once, and again after `invalidate_eras`.

        The probe uses the account of `caller` if the server has accounts.
        """
        ...

    def invalidate_eras(self) -> None:
        """Probe the eras again on next use: the server failed and may have been replaced."""
        ...

    def send(
        self, call: Call, era: Era, params: Json, handler: MessageHandler, trace: Mapping[str, str]
    ) -> Awaitable[Json]:
        """Send a client's call in that era, with that trace context."""
        ...

    async def listen(self, handler: MessageHandler) -> None:
        """Pass list changes to `handler` until the server ends the stream."""
        ...

    def task_session(self, call: Call) -> str:
        """Where a task that this call has created lives; see `Backend.task_session`."""
        ...

    def session_owner(self, caller: Caller) -> str | None:
        """The tenant or principal that this caller's session belongs to; None if the session is shared."""
        ...

    async def close(self) -> None: ...


class IsolatedSessions(IsolatedLists, Protocol):
    """Sessions or processes that belong to one tenant or principal each."""

    def owner(self, caller: Caller) -> str:
        """The tenant or principal that owns the caller's session."""
        ...

    def on_change(self, listener: Callable[[ListChange], None]) -> None:
        """Pass changes to `listener`, with the owner set."""
        ...


class RemoteBackend:
    """A remote server. Calls use the client's era if the server supports it, else they are translated.

    The server is not trusted: its annotations cannot lower the effect of a tool.
    """

    trusted = False

    def __init__(
        self,
        namespace: str,
        manifest: Manifest,
        transport: UpstreamTransport,
        info: Json,
        capacity: Capacity = Capacity(),
        clock: Callable[[], float] = time.monotonic,
        accounts: AccountAccess | None = None,
    ) -> None:
        self.namespace = namespace
        self.manifest = manifest
        self._transport = transport
        self._info = info
        self._accounts = accounts
        self._clock = clock
        self._bulkhead = Bulkhead(namespace, capacity)
        self._breakers = Breakers(namespace, transport.probe, clock)
        self._eras_invalidated = -_ERA_PROBE_INTERVAL
        self._listeners: list[Callable[[ListChange], None]] = []
        self._subscriptions = ResourceSubscriptions(namespace, transport, self._on_session_change)
        self._list_watcher = ListWatcher(namespace, self._listen)
        self._offers_tasks = False
        """Whether the server has the tasks extension of 2026-07-28."""
        self._lists_failed = False
        """Whether the last attempt to read the lists failed."""
        self._active = 0
        self._closing = False
        self._idle = asyncio.Event()
        self._state: State = "unknown"
        self._since = time.time()
        self._last_error: tuple[Kind, float] | None = None
        if transport.isolated is not None:
            transport.isolated.on_change(self._notify_listeners)

    @property
    def isolated_lists(self) -> IsolatedLists | None:
        return self._transport.isolated

    def guard_definitions(self, guard: DefinitionGuard) -> None:
        """Send a call only after the guard compared the definitions of the server that executes it."""
        self._transport.guard_definitions(guard)

    async def open(self) -> None:
        self._list_watcher.start()

    async def close(self) -> None:
        """Wait for the calls in progress, at most `CLOSE_SECONDS`, then close the transport."""
        await self._list_watcher.stop()
        await self._subscriptions.close()
        self._closing = True
        if self._active:
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self._idle.wait()
        await self._transport.close()

    async def eras(self) -> frozenset[Era]:
        """The eras that the server supports; probes if unknown."""
        return await self._transport.eras()

    # ---- lists ----

    async def fetch_lists(self, caller: Caller | None) -> BackendLists:
        try:
            lists = await read_lists(self._transport)
        except UpstreamCredentialRejected:
            if self._accounts is None:
                self._lists_failed = True
                self._record_error(Kind.UNAVAILABLE)
                raise
            lists = BackendLists()  # only accounts may read the lists
        except (Fault, asyncio.CancelledError) as exc:
            self._lists_failed = True
            self._record_error(exc.kind if isinstance(exc, Fault) else Kind.TIMEOUT)
            raise
        self._lists_failed = False
        self._offers_tasks = declares_tasks(lists.capabilities)
        self._set_state("up")
        return lists if self._accounts is None else add_note(lists, self._accounts.note)

    # ---- calls ----

    def send(self, call: Call) -> "CoroutineType[Any, Any, Json]":
        """Not a coroutine function: saves one coroutine per call."""
        return self._send(call) if self._accounts is None else self._send_for_account(call, self._accounts)

    async def _send_for_account(self, call: Call, accounts: AccountAccess) -> Json:
        try:
            return await self._send(without_answers(call))
        except AccountRequired as required:
            return await ask_for_account(call, required, accounts, self._send)

    async def _send(self, call: Call) -> Json:
        domain, tenant = self._transport.failure_domain(call), call.caller.tenant
        before = _NO_FAILURES if self._breakers.is_clear else await self._breakers.admit(domain, tenant)
        hop = UpstreamHop(self.namespace, new_span_id(), self._transport.kind, self._transport.address)
        if not self._bulkhead.try_acquire(tenant):
            await self._bulkhead.wait(tenant)
            hop.queued, hop.started = perf_counter_ns() - hop.started, perf_counter_ns()
        self._active += 1
        try:
            eras = self._transport.known_eras or await self._transport.eras(call.caller)
            result = await self._forward(call, hop, eras)
            if result.get("resultType") == "task" or "task" in result:
                result = await complete_task(call, era_for(call.client, eras), result, partial(self._send_again, eras))
        except Fault as fault:
            hop.failure, hop.message = fault.kind.value, fault.message
            if fault.kind in _BREAKER_KINDS:
                self._record_failure(domain, tenant, fault, before)
            raise
        except asyncio.CancelledError:
            # Cancelled by the deadline or by the client; only a timeout counts as a failure of the server.
            duration = (perf_counter_ns() - hop.started) / 1e9 - call.wire.waited
            timed_out = call.route is not None and duration >= call.route.timeout * _DEADLINE_SHARE
            hop.failure = "timeout" if timed_out else "cancelled"
            if timed_out:
                self._record_failure(domain, tenant, None, before)
            raise
        except ForeignError as error:
            hop.failure, hop.code, hop.message = str(error.code), error.code, error.message
            self._record_success(domain, tenant)  # an error response is a response
            raise
        finally:
            hop.ended = perf_counter_ns()
            self._bulkhead.release(tenant)
            self._active -= 1
            if self._closing and not self._active:
                self._idle.set()
        if result.get("isError"):
            hop.failure = "tool_error"
        if self._state != "up" or not self._breakers.is_clear:
            self._record_success(domain, tenant)
        return result

    def _forward(self, call: Call, hop: UpstreamHop, eras: frozenset[Era]) -> Awaitable[Json]:
        """Not a coroutine function: saves one coroutine per call."""
        transport, client, route = self._transport, call.client, call.route
        era = era_for(client, eras)
        trace = _child_trace(call, hop)
        handler = Conversation(call, hop, self._bulkhead, self._on_session_change)
        params: Json = {**call.params, "_meta": handler.build_meta(era, trace, self._info)}
        if (
            self._offers_tasks
            or call.method != "tools/call"
            or (route is not None and route.task_support == "required")
        ):
            adapt_to_tasks(call, era, params, offers_tasks=self._offers_tasks)
        if route is not None and (key := NAME_PARAMS.get(call.method)) is not None:
            params[key] = route.name
        if era == "handshake" and client.modern:
            return call_handshake_server(params, partial(transport.send, call, era, handler=handler, trace=trace))
        return transport.send(call, era, params, handler, trace)

    def _send_again(self, eras: frozenset[Era], call: Call) -> Awaitable[Json]:
        """Send a further request of a call that is being executed."""
        hop = UpstreamHop(self.namespace, new_span_id(), self._transport.kind, self._transport.address)
        return self._forward(call, hop, eras)

    def task_session(self, call: Call) -> str:
        return self._transport.task_session(call)

    # ---- health ----

    def health(self) -> UpstreamHealth:
        breaker = self._breakers.state
        error, at = self._last_error or (None, None)
        return UpstreamHealth(
            state="down" if breaker == "open" else self._state,
            transport=self._transport.kind,
            eras=tuple(sorted(self._transport.known_eras or ())),
            breaker=breaker,
            open_tenant_breakers=self._breakers.open_for_tenants,
            in_flight=self._bulkhead.in_flight,
            waiting=self._bulkhead.waiting,
            last_error=error,
            last_error_at=at,
            since=self._since,
        )

    def _record_failure(self, domain: Hashable, tenant: str, fault: Fault | None, before: FailureCounts) -> None:
        """Count a failed call; `fault` is None for a timeout, which says nothing about the eras of the server."""
        self._record_error(Kind.TIMEOUT if fault is None else fault.kind)
        if fault is not None and self._clock() - self._eras_invalidated >= _ERA_PROBE_INTERVAL:
            self._eras_invalidated = self._clock()
            self._transport.invalidate_eras()
        self._breakers.record_failure(domain, tenant, fault, before)

    def _record_success(self, domain: Hashable, tenant: str) -> None:
        self._breakers.record_success(domain, tenant)
        self._set_state("up")

    def _record_error(self, kind: Kind) -> None:
        self._last_error = (kind, time.time())
        self._set_state("failing")

    def _set_state(self, state: State) -> None:
        if state != self._state:
            self._state, self._since = state, time.time()

    # ---- changes ----

    def on_change(self, listener: Callable[[ListChange], None]) -> None:
        self._listeners.append(listener)

    def _notify_listeners(self, change: ListChange) -> None:
        for listener in self._listeners:
            listener(change)

    def _on_session_change(self, change: ListChange, caller: Caller) -> None:
        """Handle a change reported in that caller's session: it concerns all callers who share the session."""
        if change.kind == "resource":
            change = change._replace(owner=self._transport.session_owner(caller))
        elif (isolated := self._transport.isolated) is not None:
            change = change._replace(owner=isolated.owner(caller))
        self._notify_listeners(change)

    async def set_subscriptions(self, interests: Sequence[ResourceInterest]) -> None:
        await self._subscriptions.set_interests(interests)

    async def _listen(self) -> None:
        await self._transport.eras()
        if self._lists_failed:
            self._notify_listeners(ListChange("tools"))  # reachable again: have the lists read
        await self._transport.listen(ChangeListener(self._notify_listeners))


def _child_trace(call: Call, hop: UpstreamHop) -> Mapping[str, str]:
    """Add the hop to the call's record. Returns the trace context for the server, with the hop's span as parent."""
    record, position = call.record, call.record.position
    if record.hops is None:
        record.hops = [hop]
    else:
        record.hops.append(hop)
    if position is None:
        return call.trace
    trace = {**call.trace, "traceparent": f"00-{position.trace_id}-{hop.span_id}-{'01' if position.sampled else '00'}"}
    trace.pop(HTTP_TRACEPARENT, None)
    return trace


def era_for(client: ClientProfile, eras: frozenset[Era]) -> Era:
    """Return the client's era if the server supports it, else the other one."""
    return "modern" if "modern" in eras and (client.modern or "handshake" not in eras) else "handshake"


def gateway_meta(info: Json) -> Json:
    """The `_meta` of the gateway's own requests in the modern era; it declares no client capabilities."""
    return {PROTOCOL_VERSION_META_KEY: MODERN, CLIENT_CAPABILITIES_META_KEY: {}, CLIENT_INFO_META_KEY: info}


def listen_params(info: Json, uris: frozenset[str] | None = None) -> Json:
    """The params of `subscriptions/listen`: for these resources, or by default for all lists."""
    if uris is not None:
        return {"notifications": {"resourceSubscriptions": sorted(uris)}, "_meta": gateway_meta(info)}
    flags: Json = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}
    return {"notifications": flags, "_meta": gateway_meta(info)}


def speaks_modern(discovery: Json) -> bool:
    versions: Any = discovery.get("supportedVersions")
    return isinstance(versions, list) and MODERN in versions
