"""The credentials of connected accounts at one server: cached in memory, loaded from the vault, refreshed in time.

One process refreshes a token; the others wait for its result (a lease in the database). If that process dies, its lease
expires and another repeats the refresh: a server with a grace period accepts that, a strict one makes the account
"reconnect needed".
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, NoReturn, Protocol

from gateway.accounts.credentials import (
    BoundCredential,
    Credential,
    KeyHeader,
    ProofKeys,
    build_credential,
    decode_access,
    encode_access,
)
from gateway.accounts.store import LEASE_SECONDS, Account, AccountStore
from gateway.errors import Fault, Kind
from gateway.outbound.oauth import Proof, Token, TokenRefused

log = logging.getLogger("gatehouse.accounts")

POLL_SECONDS: Final = 0.25
WRITE_ATTEMPTS: Final = 5
GIVE_UP_SECONDS: Final = LEASE_SECONDS + 15.0
RENEW_SECONDS: Final = 1.0
"""How often the process that refreshes renews its lease."""
RETRY_SECONDS: Final = 2.0
"""Delay before a refresh that failed is repeated, while the old token is still valid."""

Require = Callable[[str, bool], Fault]
"""Builds the fault for a principal without a usable account; the flag tells whether it was connected before."""


class AccountRefresh(Protocol):
    """Exchanges the refresh token of an account at the endpoint it was issued by."""

    async def __call__(self, account: Account, proof: Proof | None) -> Token: ...


class AccountTokens:
    """`gateway.upstream.account_access.AccountCredential`. Owners are principals, whose names begin with the tenant."""

    def __init__(
        self,
        backend: str,
        store: AccountStore,
        refresh: AccountRefresh,
        require: Require,
        *,
        worker: str,
        origin: str,
        keys: ProofKeys,
        header: KeyHeader = KeyHeader(),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._backend = backend
        self._store = store
        self._refresh_grant = refresh
        self._require = require
        self._worker = worker
        self._origin = origin
        self._keys = keys
        self._header = header
        self._clock = clock
        self._cache: dict[str, Credential] = {}
        self._flights: dict[tuple[str, str | None], asyncio.Task[Credential]] = {}
        self._changed: dict[str, asyncio.Event] = {}
        self.used: dict[str, float] = {}
        """When each account was last used, in Unix time, since the last `take_uses`."""

    # ---- used on every call ----

    def cached(self, owner: str) -> Credential | None:
        credential = self._cache.get(owner)
        if credential is None:
            return None
        now = self._clock()
        if now >= credential.renew_at:
            return None
        self.used[owner] = now
        return credential

    async def obtain(self, owner: str) -> Credential:
        return await self._fly(owner, None)

    async def replace(self, owner: str, rejected: Credential, headers: Mapping[str, str]) -> Credential:
        if isinstance(rejected, BoundCredential) and rejected.accept_nonce(headers):
            return rejected
        self._forget(owner, rejected)
        return await self._fly(owner, rejected.value)

    async def give_up(self, owner: str, rejected: Credential) -> NoReturn:
        self._forget(owner, rejected)
        account = await self._find(owner)
        if account is not None and _value(account) == rejected.value:
            log.warning("accounts %s: the server rejects a new token; %s has to connect again", self._backend, owner)
            await self._store.mark_reconnect(account)
        raise self._require(owner, True)

    # ---- changes by any process ----

    def on_change(self, owner: str | None) -> None:
        """The account of this principal has changed; None if any may have."""
        if owner is None:
            self._cache.clear()
        else:
            self._cache.pop(owner, None)
        for key in [owner] if owner is not None else list(self._changed):
            if (event := self._changed.get(key)) is not None:
                event.set()

    async def wait_for_change(self, owner: str, seconds: float) -> None:
        """Return when the account changes, or after this time."""
        event = self._changed.setdefault(owner, asyncio.Event())
        try:
            async with asyncio.timeout(seconds):
                await event.wait()
        except TimeoutError:
            pass
        finally:
            if event.is_set():
                self._changed.pop(owner, None)

    def knows(self, owner: str) -> bool:
        return owner in self._cache

    def take_uses(self) -> dict[str, float]:
        uses, self.used = self.used, {}
        return uses

    # ---- loading and refreshing ----

    async def _fly(self, owner: str, rejected: str | None) -> Credential:
        """Join the load in progress or start one. A cancelled call does not cancel it for the others."""
        flight = self._flights.get((owner, rejected))
        if flight is None:
            flight = self._flights[(owner, rejected)] = _spawn(self._load(owner, rejected))
            flight.add_done_callback(lambda _: self._flights.pop((owner, rejected), None))
        return await asyncio.shield(flight)

    async def _load(self, owner: str, rejected: str | None) -> Credential:
        give_up_at = self._clock() + GIVE_UP_SECONDS
        while self._clock() < give_up_at:
            account = await self._find(owner)
            if account is None or account.state != "connected":
                raise self._require(owner, account is not None)
            credential = build_credential(account, self._header, self._keys, self._origin)
            if credential.value != rejected and self._clock() < credential.renew_at:
                return self._keep(owner, credential)
            if account.refresh is None:
                return await self._without_refresh(account, credential, rejected)
            if await self._store.take_lease(account, self._worker):
                return await self._refresh(account, credential, rejected)
            await self.wait_for_change(owner, POLL_SECONDS)
        raise Fault(Kind.UNAVAILABLE, f"The token for {self._backend} could not be refreshed in time.", retry_after=1)

    async def _without_refresh(self, account: Account, credential: Credential, rejected: str | None) -> Credential:
        """A token that cannot be refreshed is used until it expires or is rejected."""
        expires_at = account.expires_at
        if credential.value != rejected and (expires_at is None or self._clock() < expires_at):
            credential.renew_at = expires_at or float("inf")
            return self._keep(account.principal, credential)
        await self._store.mark_reconnect(account)
        raise self._require(account.principal, True)

    async def _refresh(self, account: Account, credential: Credential, rejected: str | None) -> Credential:
        token, key_text = decode_access(account)
        key = self._keys.load(key_text) if key_text is not None else None
        try:
            async with self._keep_lease(account):
                answer = await self._refresh_grant(account, key.sign if key is not None else None)
        except TokenRefused as refused:
            if refused.error != "invalid_grant":
                return await self._after_failure(account, credential, rejected, refused)
            log.warning(
                "accounts %s: the refresh token is no longer accepted; %s has to connect again",
                self._backend,
                account.principal,
            )
            await self._store.mark_reconnect(account)
            raise self._require(account.principal, True) from refused
        except Fault as fault:
            return await self._after_failure(account, credential, rejected, fault)
        except BaseException:
            await self._store.release_lease(account, self._worker)
            raise
        fresh = await self._write(account, answer, encode_access(answer.access, key if answer.is_dpop else None))
        if fresh is None:  # connected again or disconnected meanwhile
            return await self._load(account.principal, token)
        return self._keep(account.principal, build_credential(fresh, self._header, self._keys, self._origin))

    @asynccontextmanager
    async def _keep_lease(self, account: Account) -> AsyncGenerator[None]:
        """Renew the lease while the block runs, so that no other process refreshes as well."""

        async def renew() -> None:
            while True:
                await asyncio.sleep(RENEW_SECONDS)
                with suppress(Fault):
                    await self._store.renew_lease(account, self._worker)

        renewal = asyncio.create_task(renew())
        try:
            yield
        finally:
            renewal.cancel()
            with suppress(asyncio.CancelledError):
                await renewal

    async def _write(self, account: Account, answer: Token, access: str) -> Account | None:
        """Store the answer. A server that rotates refresh tokens has already invalidated the old one: keep trying."""
        scopes = answer.scopes if answer.scopes is not None else account.scopes
        for attempt in range(1, WRITE_ATTEMPTS + 1):
            try:
                return await self._store.replace_tokens(account, access, answer.refresh, answer.lifetime, scopes)
            except Fault:
                if attempt == WRITE_ATTEMPTS:
                    raise
                await asyncio.sleep(0.1 * 2**attempt)
        raise AssertionError

    async def _after_failure(
        self, account: Account, credential: Credential, rejected: str | None, fault: Fault
    ) -> Credential:
        """The endpoint failed: the old token stays in use while it is valid."""
        log.warning("accounts %s: refresh for %s failed: %s", self._backend, account.principal, fault.message)
        await self._store.release_lease(account, self._worker)
        now = self._clock()
        if credential.value != rejected and account.expires_at is not None and now < account.expires_at:
            credential.renew_at = min(now + RETRY_SECONDS, account.expires_at)
            return self._keep(account.principal, credential)
        message = f"The token for {self._backend} could not be refreshed."
        raise Fault(Kind.UNAVAILABLE, message, retry_after=RETRY_SECONDS) from fault

    def _keep(self, owner: str, credential: Credential) -> Credential:
        self._cache[owner] = credential
        self.used[owner] = self._clock()
        return credential

    def _forget(self, owner: str, rejected: Credential) -> None:
        # Another call may have replaced the credential already.
        if self._cache.get(owner) is rejected:
            del self._cache[owner]

    async def _find(self, owner: str) -> Account | None:
        return await self._store.find(owner.partition("/")[0], owner, self._backend)


def _value(account: Account) -> str:
    return account.access.value if account.kind == "key" else decode_access(account)[0]


def _spawn(work: Coroutine[Any, Any, Credential]) -> "asyncio.Task[Credential]":
    task = asyncio.create_task(work)
    # Mark the exception as retrieved: every caller may have been cancelled.
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task
