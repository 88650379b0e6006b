"""The lists of a server with accounts: each principal's own, read with its account."""

from collections.abc import Callable, Hashable
from typing import Final, Literal, Protocol

from gateway.contract import BackendLists, Caller, ClientProfile, Json, ListChange
from gateway.upstream.account_access import AccountAccess, add_note
from gateway.upstream.health import UpstreamCredentialRejected
from gateway.upstream.lists import read_lists

_KINDS: Final[tuple[Literal["tools", "prompts", "resources"], ...]] = ("tools", "prompts", "resources")


class AccountRequests(Protocol):
    """The transport, as far as lists are concerned. None is the gateway itself."""

    async def discover_for(self, caller: Caller | None) -> Json: ...

    async def request_for(self, caller: Caller | None, method: str, params: Json) -> Json: ...


class AccountLists:
    """`gateway.upstream.remote.IsolatedSessions`. Principals without an account get the lists of the gateway."""

    isolation: Literal["tenant", "user"] = "user"

    def __init__(self, transport: AccountRequests, accounts: AccountAccess) -> None:
        self._transport = transport
        self._accounts = accounts
        self._listeners: list[Callable[[ListChange], None]] = []
        accounts.on_change(self._notify)

    def kind(self, client: ClientProfile) -> Hashable:
        return None

    def owner(self, caller: Caller) -> str:
        return caller.principal

    def is_running(self, caller: Caller) -> bool:
        return self._accounts.is_known(caller.principal)

    async def fetch_lists(self, caller: Caller, client: ClientProfile | None) -> BackendLists:
        if await self._accounts.is_connected(caller.principal):
            return await read_lists(_CallerLists(self._transport, caller))
        try:
            lists = await read_lists(_CallerLists(self._transport, None))
        except UpstreamCredentialRejected:
            lists = BackendLists()
        return add_note(lists, self._accounts.note)

    def on_change(self, listener: Callable[[ListChange], None]) -> None:
        self._listeners.append(listener)

    def _notify(self, owner: str) -> None:
        """An account was connected or disconnected: its principal's lists are read again."""
        for kind in _KINDS:
            for listener in self._listeners:
                listener(ListChange(kind, owner=owner))


class _CallerLists:
    """`gateway.upstream.lists.ListSource` of one caller."""

    def __init__(self, transport: AccountRequests, caller: Caller | None) -> None:
        self._transport = transport
        self._caller = caller

    async def discover(self) -> Json:
        return await self._transport.discover_for(self._caller)

    async def request(self, method: str, params: Json) -> Json:
        return await self._transport.request_for(self._caller, method, params)
