"""The stdio transport: a server runs as a child process, shared or one per tenant or user."""

import asyncio
from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import Final, Literal
from weakref import WeakKeyDictionary

from gateway.contract import Call, Caller, ClientProfile, DefinitionGuard, Json
from gateway.errors import Fault, ForeignError
from gateway.upstream.channel_pool import ChannelKey, ChannelPool
from gateway.upstream.concurrency import SingleFlight, StartLimiter
from gateway.upstream.conversation import LISTING_CAPABILITIES, MessageHandler, NullMessageHandler, capability_names
from gateway.upstream.jsonrpc_channel import DuplexStream, JsonRpcChannel
from gateway.upstream.lists import ChangeListener, read_lists
from gateway.upstream.remote import Era, TransportKind, era_for, listen_params
from gateway.upstream.stdio.isolated_processes import ChannelListSource, IsolatedProcesses, ProcessKey
from gateway.upstream.stdio.process import ChildProcess, ChildProgram

Isolation = Literal["shared", "tenant", "user"]

MAX_PROCESSES: Final = 32
PROBE_SECONDS: Final = 20.0
_NULL_HANDLER: Final = NullMessageHandler()
_LISTING_KEY: Final[ChannelKey] = ()
"""The process that lists are read from; with `shared` isolation it serves the calls too."""


class StdioTransport:
    """`gateway.upstream.remote.UpstreamTransport`. Processes start on demand and again after they ended."""

    kind: TransportKind = "stdio"
    address: tuple[str, int] | None = None

    def __init__(
        self, program: ChildProgram, isolation: Isolation, info: Json, max_processes: int = MAX_PROCESSES
    ) -> None:
        async def connect(on_message: Callable[[Json], None], on_close: Callable[[], None]) -> DuplexStream:
            return await ChildProcess.start(program, on_message, on_close)

        self._program = program
        self._info = info
        self._make_channel = lambda: JsonRpcChannel(program.namespace, connect, info, single_caller=isolation == "user")
        self._channels = ChannelPool(
            program.namespace, self._make_channel, max_processes, StartLimiter(), self._on_open
        )
        self.isolated = (
            IsolatedProcesses(isolation, self._channels, self._channel_for, info) if isolation != "shared" else None
        )
        self._probe_once = SingleFlight(self._probe)
        self._listing_era: Era | None = None
        self._guard: DefinitionGuard | None = None
        self._comparisons: WeakKeyDictionary[JsonRpcChannel, asyncio.Task[None]] = WeakKeyDictionary()
        """The comparison of the definitions of each process, done or in progress."""
        self.known_eras: frozenset[Era] | None = None

    def guard_definitions(self, guard: DefinitionGuard) -> None:
        self._guard = guard

    async def eras(self, caller: Caller | None = None) -> frozenset[Era]:
        return self.known_eras if self.known_eras is not None else await self._probe_once()

    async def _probe(self) -> frozenset[Era]:
        """A process supports only the era it was opened in; a second process probes the other one."""
        era = (await self._listing_channel()).era
        found: set[Era] = {era}
        if era == "modern":
            second = self._make_channel()
            try:
                await second.start({}, "handshake")
                found.add(second.era)
                await second.stop()
            except (Fault, ForeignError):
                pass
        self.known_eras = known = frozenset(found)
        return known

    def invalidate_eras(self) -> None:
        """Ignored: a program does not change its eras."""

    async def probe(self) -> None:
        """The process that lists are read from stands for all of them: they run the same program."""
        channel = await self._listing_channel()
        method = "server/discover" if channel.era == "modern" else "ping"
        async with asyncio.timeout(PROBE_SECONDS):
            await ChannelListSource(channel, self._info).request(method, {})

    async def discover(self) -> Json:
        return (await self._listing_channel()).discovery

    async def request(self, method: str, params: Json) -> Json:
        return await ChannelListSource(await self._listing_channel(), self._info).request(method, params)

    async def send(self, call: Call, era: Era, params: Json, handler: MessageHandler, trace: Mapping[str, str]) -> Json:
        client, guard = call.client, self._guard if call.method == "tools/call" else None
        if guard is not None:
            await guard.prepare(call)
        channel = await self._channel(self.failure_domain(call), era, client.capabilities)
        if guard is not None:
            await self._compare(guard, call, channel)
            guard.check(call)
        if self.isolated is None:
            return await channel.request(call.method, params, _SharedProcessHandler(handler))
        await channel.set_log_level(client.log_level)
        return await channel.request(call.method, params, handler)

    def task_session(self, call: Call) -> str:
        """A task lives in a process of this worker."""
        return "worker"

    async def listen(self, handler: MessageHandler) -> None:
        channel = await self._listing_channel()
        channel.set_handler(handler)
        if channel.era == "modern":
            await channel.request("subscriptions/listen", listen_params(self._info), handler)
            return
        await channel.closed.wait()

    def session_owner(self, caller: Caller) -> str | None:
        return self.isolated.owner(caller) if self.isolated is not None else None

    def subscription_key(self, caller: Caller, client: ClientProfile) -> Hashable:
        return self.session_owner(caller), client.modern, capability_names(client.capabilities)

    async def subscribe(
        self, caller: Caller, client: ClientProfile, uris: frozenset[str], listener: ChangeListener
    ) -> None:
        era = era_for(client, await self.eras())
        channel = await self._channel(self.session_owner(caller) or "", era, client.capabilities)
        if channel.era == "modern":
            await channel.request("subscriptions/listen", listen_params(self._info, uris), listener)
        else:
            await channel.subscribe(uris, listener)

    async def close(self) -> None:
        await self._channels.close()

    def failure_domain(self, call: Call) -> str:
        return self.isolated.owner(call.caller) if self.isolated is not None else ""

    async def _channel_for(self, caller: Caller, client: ClientProfile) -> JsonRpcChannel:
        """The channel of the process that serves this client's calls."""
        assert self.isolated is not None
        return await self._channel(self.isolated.owner(caller), era_for(client, await self.eras()), client.capabilities)

    async def _channel(self, owner: str, era: Era, capabilities: Json) -> JsonRpcChannel:
        if not owner and era == self._listing_era:
            return await self._listing_channel()
        # A shared process cannot address a particular client: declare no client capabilities.
        offered = capabilities if owner else {}
        key = ProcessKey(owner, era, capability_names(offered) if era == "handshake" else frozenset())
        return await self._channels.get(key, offered, era)

    async def _compare(self, guard: DefinitionGuard, call: Call, channel: JsonRpcChannel) -> None:
        """Have the definitions of this process compared, once."""
        comparison = self._comparisons.get(channel)
        if comparison is None:
            comparison = asyncio.create_task(self._compare_process(guard, call.caller, channel))
            self._comparisons[channel] = comparison
        try:
            await asyncio.shield(comparison)
        finally:
            if comparison.done() and (comparison.cancelled() or comparison.exception() is not None):
                self._comparisons.pop(channel, None)

    async def _compare_process(self, guard: DefinitionGuard, caller: Caller, channel: JsonRpcChannel) -> None:
        if self.isolated is not None:
            await guard.compare(self.isolated.owner(caller), partial(self.isolated.fetch_lists, caller, None))
        else:
            await guard.compare(None, partial(read_lists, ChannelListSource(channel, self._info)))

    def _on_open(self, key: ChannelKey, channel: JsonRpcChannel) -> None:
        if self.isolated is not None and isinstance(key, ProcessKey):
            self.isolated.watch(key, channel)

    async def _listing_channel(self) -> JsonRpcChannel:
        offered = LISTING_CAPABILITIES if self.isolated is not None else {}
        channel = await self._channels.get(_LISTING_KEY, offered, self._listing_era)
        self._listing_era = channel.era
        return channel


class _SharedProcessHandler:
    """Handler of a call on a shared process: forwards progress only.

    Requests and log messages of the process could belong to another principal's call.
    """

    def __init__(self, handler: MessageHandler) -> None:
        self._handler = handler
        self.token = handler.token
        self.on_sent = handler.on_sent

    async def on_notification(self, method: str, params: Json) -> None:
        if method == "notifications/progress":
            await self._handler.on_notification(method, params)

    async def on_request(self, method: str, params: Json) -> Json:
        return await _NULL_HANDLER.on_request(method, params)

    async def on_stream_closed(self) -> None:
        """Ignored: a pipe is never closed early."""
