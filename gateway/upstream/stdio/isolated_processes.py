"""Server processes that belong to one tenant or principal: their lists and their change notifications.

Used by `StdioTransport`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from functools import partial
from typing import Literal, NamedTuple

from gateway.contract import BackendLists, Caller, ClientProfile, Json, ListChange
from gateway.errors import Fault, ForeignError, Kind
from gateway.upstream.channel_pool import ChannelPool
from gateway.upstream.conversation import NullMessageHandler, capability_names
from gateway.upstream.jsonrpc_channel import JsonRpcChannel
from gateway.upstream.lists import ChangeListener, merge_lists, read_lists
from gateway.upstream.remote import Era, gateway_meta, listen_params


class ProcessKey(NamedTuple):
    """Identifies one process by its owner and how it was opened."""

    owner: str
    """A tenant or a principal; empty for a shared process."""
    era: Era
    capabilities: frozenset[str] = frozenset()
    """Handshake era only: the client capabilities are fixed at `initialize`, so each set has its own process."""


class IsolatedProcesses:
    """`gateway.upstream.remote.IsolatedSessions`.

    An owner may have several processes, for clients of different eras and capabilities; their lists are merged.
    """

    def __init__(
        self,
        isolation: Literal["tenant", "user"],
        channels: ChannelPool,
        open_channel: Callable[[Caller, ClientProfile], Awaitable[JsonRpcChannel]],
        info: Json,
    ) -> None:
        self.isolation: Literal["tenant", "user"] = isolation
        self._channels = channels
        self._open_channel = open_channel
        self._info = info
        self._listeners: list[Callable[[ListChange], None]] = []
        self._watch_tasks: set[asyncio.Task[None]] = set()

    def owner(self, caller: Caller) -> str:
        return caller.tenant if self.isolation == "tenant" else caller.principal

    def is_running(self, caller: Caller) -> bool:
        return bool(self._channels_of(caller))

    def kind(self, client: ClientProfile) -> Hashable:
        return capability_names(client.capabilities)

    async def fetch_lists(self, caller: Caller, client: ClientProfile | None) -> BackendLists:
        if client is not None:
            await self._open_channel(caller, client)
        channels = self._channels_of(caller)
        if not channels:
            raise Fault(Kind.UNAVAILABLE, "The server process is not running.")
        return merge_lists([await read_lists(ChannelListSource(channel, self._info)) for channel in channels])

    def on_change(self, listener: Callable[[ListChange], None]) -> None:
        self._listeners.append(listener)

    def watch(self, key: ProcessKey, channel: JsonRpcChannel) -> None:
        """Pass the changes that the process reports to the listeners, as long as it runs."""
        listener = ChangeListener(partial(self._notify, key.owner))
        channel.set_handler(listener)
        if channel.era == "modern":
            task = asyncio.create_task(self._listen(channel, listener), name=f"follow:{key.owner}")
            self._watch_tasks.add(task)
            task.add_done_callback(self._watch_tasks.discard)

    async def _listen(self, channel: JsonRpcChannel, listener: ChangeListener) -> None:
        # The process has ended, or does not support change notifications.
        with suppress(Fault, ForeignError):
            await channel.request("subscriptions/listen", listen_params(self._info), listener, idle=True)

    def _notify(self, owner: str, change: ListChange) -> None:
        for listener in self._listeners:
            listener(change._replace(owner=owner))

    def _channels_of(self, caller: Caller) -> list[JsonRpcChannel]:
        """The owner's channels, most client capabilities first: some servers list less to less capable clients."""
        owner = self.owner(caller)
        found = [
            (key, channel)
            for key, channel in self._channels.alive()
            if isinstance(key, ProcessKey) and key.owner == owner
        ]
        return [channel for _, channel in sorted(found, key=lambda entry: len(entry[0].capabilities), reverse=True)]


class ChannelListSource:
    """`gateway.upstream.lists.ListSource` for one process."""

    def __init__(self, channel: JsonRpcChannel, info: Json) -> None:
        self._pipe = channel
        self._info = info

    async def discover(self) -> Json:
        return self._pipe.discovery

    async def request(self, method: str, params: Json) -> Json:
        if self._pipe.era == "modern":
            params = {**params, "_meta": gateway_meta(self._info)}
        return await self._pipe.request(method, params, _NULL_HANDLER)


_NULL_HANDLER = NullMessageHandler()
