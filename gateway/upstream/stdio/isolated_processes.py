"""What tells the processes of one server apart.

The processes that a tenant or a principal has to itself: what they list, and what they say has changed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from functools import partial
from typing import Literal, NamedTuple

from gateway.contract import BackendLists, Caller, ClientProfile, Json, ListChange
from gateway.errors import Fault, ForeignError, Kind
from gateway.upstream.channel_pool import ChannelPool
from gateway.upstream.conversation import NullMessageHandler, abilities
from gateway.upstream.jsonrpc_channel import JsonRpcChannel
from gateway.upstream.lists import ChangeListener, read_lists, together
from gateway.upstream.remote import Era, envelope, listening


class ProcessKey(NamedTuple):
    """One process: whose it is, and how it was opened."""

    whose: str
    """A tenant or a principal; empty: everybody's."""
    era: Era
    able: frozenset[str] = frozenset()
    """Greeted once in the handshake era, a process knows its client for good: one for each kind of client."""


class IsolatedProcesses:
    """`gateway.upstream.remote.OwnSessions`. Several processes may be one owner's: for clients of either era, and for
    clients that can do other things. What any of them lists is the owner's."""

    def __init__(
        self,
        each: Literal["tenant", "user"],
        pipes: ChannelPool,
        open: Callable[[Caller, ClientProfile], Awaitable[JsonRpcChannel]],
        info: Json,
    ) -> None:
        self.isolation: Literal["tenant", "user"] = each
        self._pipes = pipes
        self._open = open
        self._info = info
        self._listeners: list[Callable[[ListChange], None]] = []
        self._following: set[asyncio.Task[None]] = set()

    def whose(self, caller: Caller) -> str:
        return caller.tenant if self.isolation == "tenant" else caller.principal

    def is_running(self, caller: Caller) -> bool:
        return bool(self._theirs(caller))

    def kind(self, client: ClientProfile) -> Hashable:
        return abilities(client.capabilities)

    async def fetch_lists(self, caller: Caller, client: ClientProfile | None) -> BackendLists:
        if client is not None:
            await self._open(caller, client)
        theirs = self._theirs(caller)
        if not theirs:
            raise Fault(Kind.UNAVAILABLE, "It does not run.")
        return together([await read_lists(ChannelListSource(pipe, self._info)) for pipe in theirs])

    def on_change(self, listener: Callable[[ListChange], None]) -> None:
        self._listeners.append(listener)

    def follow(self, key: ProcessKey, pipe: JsonRpcChannel) -> None:
        """Hear what it says has changed, as long as it runs."""
        hearing = ChangeListener(partial(self._said, key.whose))
        pipe.hear(hearing)
        if pipe.era == "modern":
            task = asyncio.create_task(self._listen(pipe, hearing), name=f"follow:{key.whose}")
            self._following.add(task)
            task.add_done_callback(self._following.discard)

    async def _listen(self, pipe: JsonRpcChannel, hearing: ChangeListener) -> None:
        # It has ended, or does not tell of its changes.
        with suppress(Fault, ForeignError):
            await pipe.request("subscriptions/listen", listening(self._info), hearing, idle=True)

    def _said(self, whose: str, change: ListChange) -> None:
        for listener in self._listeners:
            listener(change._replace(owner=whose))

    def _theirs(self, caller: Caller) -> list[JsonRpcChannel]:
        """Those whose client can do most first: some servers list less to a client that can do less."""
        whose = self.whose(caller)
        found = [(key, pipe) for key, pipe in self._pipes.alive() if isinstance(key, ProcessKey) and key.whose == whose]
        return [pipe for _, pipe in sorted(found, key=lambda each: len(each[0].able), reverse=True)]


class ChannelListSource:
    """`gateway.upstream.lists.Source`: one process."""

    def __init__(self, pipe: JsonRpcChannel, info: Json) -> None:
        self._pipe = pipe
        self._info = info

    async def hello(self) -> Json:
        return self._pipe.greeting

    async def ask(self, method: str, params: Json) -> Json:
        if self._pipe.era == "modern":
            params = {**params, "_meta": envelope(self._info)}
        return await self._pipe.request(method, params, _NOBODY)


_NOBODY = NullMessageHandler()
