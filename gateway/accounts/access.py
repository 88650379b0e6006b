"""The accounts of one backend, as calls, lists and pages use them, and the registry of all such backends."""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, Literal, Protocol

import msgspec

from gateway.accounts.authorization import RemoteAuthorization
from gateway.accounts.store import AccountStore
from gateway.accounts.tokens import AccountTokens
from gateway.contract import Caller
from gateway.errors import Fault
from gateway.state.changes import Keys

log = logging.getLogger("gatehouse.accounts")

LINK_SECONDS: Final = 3600.0
FLUSH_SECONDS: Final = 60.0
_LINK: Final = "account link"


class Seal(Protocol):
    """Encrypts and authenticates texts; one sealed for one purpose does not open for another."""

    def seal(self, purpose: str, payload: bytes) -> str: ...

    def open(self, purpose: str, text: str) -> bytes | None: ...


class ConnectTicket(msgspec.Struct, frozen=True):
    """Content of a connect link: for whom it was made, and the scopes to ask for."""

    principal: str
    backend: str
    scopes: list[str]
    expires: float


class ScopedRequirement(Protocol):
    """The part of `gateway.upstream.account_access.AccountRequired` that a link depends on."""

    scopes: tuple[str, ...]


class BackendAccounts:
    """`gateway.upstream.account_access.AccountAccess`: the accounts that users connect at one backend."""

    def __init__(
        self,
        name: str,
        kind: Literal["oauth", "key"],
        tokens: AccountTokens,
        store: AccountStore,
        *,
        seal: Seal,
        public_url: str,
        authorization: RemoteAuthorization | None = None,
        help: str = "",
        host: str = "",
    ) -> None:
        self.name = name
        self.kind: Literal["oauth", "key"] = kind
        self.authorization = authorization
        self.help = help
        self.host = host
        self.credential = tokens
        self.note = f"(Needs your own account at {name}. Connect it at {public_url}/accounts.)"
        self._store = store
        self._seal = seal
        self._public_url = public_url
        self._seen: dict[str, float | None] = {}
        """When the accounts that this process has looked up were connected; None if they are not."""
        self._listeners: list[Callable[[str], None]] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def is_connected(self, owner: str) -> bool:
        connected_at = self._seen[owner] = await self._connected_at(owner)
        return connected_at is not None

    def is_known(self, owner: str) -> bool:
        return self.credential.knows(owner)

    def link(self, caller: Caller, required: ScopedRequirement) -> str:
        return self.link_for(caller, required.scopes)

    def link_for(self, caller: Caller, scopes: tuple[str, ...] = ()) -> str:
        if caller.kind != "user":
            return ""
        ticket = ConnectTicket(caller.principal, self.name, list(scopes), time.time() + LINK_SECONDS)
        sealed = self._seal.seal(_LINK, msgspec.json.encode(ticket))
        return f"{self._public_url}/accounts/connect/{self.name}?ticket={sealed}"

    async def wait_until_connected(self, owner: str, seconds: float, scopes: tuple[str, ...]) -> bool:
        ends = time.monotonic() + seconds
        while (remaining := ends - time.monotonic()) > 0:
            account = await self._store.find(owner.partition("/")[0], owner, self.name)
            if account is not None and account.state == "connected" and set(scopes) <= set(account.scopes):
                return True
            await self.credential.wait_for_change(owner, min(remaining, 5.0))
        return False

    def on_change(self, listener: Callable[[str], None]) -> None:
        self._listeners.append(listener)

    def handle_change(self, owner: str | None) -> None:
        """An account was changed by any process. Listeners hear of those connected or disconnected."""
        self.credential.on_change(owner)
        for each in [owner] if owner is not None else list(self._seen):
            if each in self._seen:
                self._spawn(self._compare(each))

    async def _compare(self, owner: str) -> None:
        before = self._seen.get(owner)
        try:
            now = await self._connected_at(owner)
        except Fault as fault:
            log.warning("accounts %s: reading an account failed after a change: %s", self.name, fault.message)
            return
        self._seen[owner] = now
        if now != before:
            for listener in self._listeners:
                listener(owner)

    async def _connected_at(self, owner: str) -> float | None:
        found = await self._store.list(owner.partition("/")[0], owner)
        return next((each.connected_at for each in found if each.backend == self.name), None)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class AccountBackends:
    """The backends that have accounts now. Passes on changes, and stores times of last use."""

    def __init__(self, store: AccountStore) -> None:
        self._store = store
        self._backends: dict[str, BackendAccounts] = {}
        store.on_change(self._handle_changes)

    def add(self, backend: BackendAccounts) -> None:
        """Add a backend; replaces an earlier one with that name."""
        self._backends[backend.name] = backend

    def keep_only(self, names: Mapping[str, object]) -> None:
        """Drop the backends that are no longer served."""
        self._backends = {name: each for name, each in self._backends.items() if name in names}

    def get(self, name: str) -> BackendAccounts | None:
        return self._backends.get(name)

    def all(self) -> list[BackendAccounts]:
        return list(self._backends.values())

    def _handle_changes(self, keys: Keys) -> None:
        if keys is None:
            for backend in self._backends.values():
                backend.handle_change(None)
            return
        for key in keys:
            name, _, owner = key.partition(" ")
            if (backend := self._backends.get(name)) is not None:
                backend.handle_change(owner)

    async def run(self) -> None:
        """Store times of last use every minute, until cancelled."""
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            await self.flush()

    async def flush(self) -> None:
        uses = [
            (owner.partition("/")[0], owner, backend.name, at)
            for backend in self._backends.values()
            for owner, at in backend.credential.take_uses().items()
        ]
        try:
            if uses:
                await self._store.record_use(uses)
        except Fault as fault:
            log.warning("accounts: storing times of last use failed: %s", fault.message)


def open_ticket(seal: Seal, text: str, backend: str) -> ConnectTicket | None:
    """The content of a connect link for this backend; None if it is invalid or has expired."""
    payload = seal.open(_LINK, text)
    if payload is None:
        return None
    ticket = msgspec.json.decode(payload, type=ConnectTicket)
    return ticket if ticket.backend == backend and ticket.expires > time.time() else None
