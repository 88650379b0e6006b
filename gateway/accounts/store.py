"""The accounts in the database: rows with sealed tokens, refresh leases, and re-sealing under a new data key."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import msgspec
from sqlalchemy import text
from sqlalchemy.engine import Row

from gateway.accounts.vault import SealedField, Vault
from gateway.contract import Json
from gateway.state.changes import Keys
from gateway.state.database import Database

LEASE_SECONDS: Final = 4.0
"""A process renews its lease while it refreshes: one that expired belonged to a process that died."""
State = Literal["connected", "reconnect"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """One account, opened. `repr` shows no token."""

    tenant: str
    principal: str
    backend: str
    kind: Literal["oauth", "key"]
    issuer: str = ""
    state: State = "connected"
    version: int = 0
    access: "Secret"
    refresh: "Secret | None" = None
    client: Json
    """The OAuth client and endpoints that the account was connected with; they are never discovered again."""
    scopes: tuple[str, ...] = ()
    expires_at: float | None = None
    lifetime: float | None = None
    """Lifetime of the access token in seconds, when it was issued."""
    connected_at: float = 0.0
    used_at: float | None = None

    @property
    def id(self) -> str:
        return account_id(self.backend, self.principal)

    def place(self, field: str) -> SealedField:
        return SealedField(self.tenant, self.principal, self.backend, self.issuer, field, self.version)


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret text that `repr` does not show."""

    value: str

    def __repr__(self) -> str:
        return "Secret(…)"


StoredClient = tuple[str, Secret | None, str]
"""Client id, secret and authentication method of a registration at an authorization server."""


@dataclass(frozen=True, slots=True)
class AccountInfo:
    """An account without its secrets, for lists."""

    tenant: str
    principal: str
    backend: str
    kind: str
    state: State
    issuer: str
    scopes: tuple[str, ...]
    connected_at: float
    used_at: float | None


class AccountStore:
    """Reads and writes accounts. Each write raises the version, which the seals of the tokens are bound to."""

    def __init__(self, database: Database, vault: Vault, *, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._vault = vault
        self._clock = clock

    def on_change(self, listener: Callable[[Keys], None]) -> None:
        """Call `listener` with the ids of accounts that any process changed (`account_id`)."""
        self._database.on_change("accounts", listener)

    async def find(self, tenant: str, principal: str, backend: str) -> Account | None:
        key = {"tenant": tenant, "principal": principal, "backend": backend}
        async with self._database.reading(tenant) as connection:
            row = (await connection.execute(_FIND, key)).one_or_none()
        return None if row is None else await self._open(row)

    async def put(self, account: Account) -> Account:
        """Store a connected account, replacing an earlier one of the same principal and backend."""
        existing = await self.find_version(account.tenant, account.principal, account.backend)
        fresh = replace(account, version=existing + 1, connected_at=self._clock(), state="connected")
        row = await self._row(fresh)
        async with self._database.transaction(account.tenant) as connection:
            await connection.execute(_PUT, row)
        return fresh

    async def find_version(self, tenant: str, principal: str, backend: str) -> int:
        """The version of a row, 0 if there is none. Works also for a row whose seals are broken."""
        key = {"tenant": tenant, "principal": principal, "backend": backend}
        async with self._database.reading(tenant) as connection:
            return int((await connection.execute(_VERSION, key)).scalar_one_or_none() or 0)

    async def take_lease(self, account: Account, owner: str) -> bool:
        """Take the refresh lease of this version of an account; False if another process holds it or replaced it."""
        now = self._clock()
        async with self._database.transaction(account.tenant) as connection:
            taken = await connection.execute(
                _LEASE, {**_key(account), "owner": owner, "now": now, "until": now + LEASE_SECONDS}
            )
        return taken.rowcount == 1

    async def renew_lease(self, account: Account, owner: str) -> bool:
        """Keep a lease that this process holds; False if it was lost."""
        until = self._clock() + LEASE_SECONDS
        async with self._database.transaction(account.tenant) as connection:
            kept = await connection.execute(_RENEW, {**_key(account), "owner": owner, "until": until})
        return kept.rowcount == 1

    async def release_lease(self, account: Account, owner: str) -> None:
        async with self._database.transaction(account.tenant) as connection:
            await connection.execute(_RELEASE, {**_key(account), "owner": owner})

    async def replace_tokens(
        self, account: Account, access: str, refresh: str | None, lifetime: float | None, scopes: Sequence[str]
    ) -> Account | None:
        """Store new tokens and release the lease. None if the account was changed meanwhile: its newer row stays."""
        fresh = replace(
            account,
            version=account.version + 1,
            access=Secret(access),
            refresh=Secret(refresh) if refresh is not None else account.refresh,
            expires_at=None if lifetime is None else self._clock() + lifetime,
            lifetime=lifetime,
            scopes=tuple(scopes),
            state="connected",
        )
        row = {**await self._row(fresh), "before": account.version}
        async with self._database.transaction(account.tenant) as connection:
            written = await connection.execute(_REPLACE, row)
        return fresh if written.rowcount == 1 else None

    async def mark_reconnect(self, account: Account) -> None:
        """The server no longer accepts this version of the account: its user has to connect it again."""
        async with self._database.transaction(account.tenant) as connection:
            await connection.execute(_RECONNECT, _key(account))

    async def delete(self, tenant: str, principal: str, backend: str) -> bool:
        key = {"tenant": tenant, "principal": principal, "backend": backend}
        async with self._database.transaction(tenant) as connection:
            return (await connection.execute(_DELETE, key)).rowcount == 1

    async def list(self, tenant: str | None = None, principal: str | None = None) -> list[AccountInfo]:
        """Accounts of a principal, a tenant, or all tenants, without secrets."""
        async with self._database.reading(tenant) as connection:
            rows = (await connection.execute(_LIST, {"tenant": tenant, "principal": principal})).all()
        return [
            AccountInfo(
                row.tenant, row.principal, row.backend, row.kind, row.state, row.issuer,
                tuple(row.scopes.split()), row.connected_at, row.used_at,
            )
            for row in rows
        ]  # fmt: skip

    async def record_use(self, uses: "Sequence[tuple[str, str, str, float]]") -> None:
        """Store times of last use: tenant, principal, backend and time of each."""
        async with self._database.transaction() as connection:
            for tenant, principal, backend, at in uses:
                await connection.execute(
                    _USED, {"tenant": tenant, "principal": principal, "backend": backend, "at": at}
                )

    async def reseal(self, tenant: str) -> int:
        """Seal all accounts of a tenant with its newest data key, while the gateway runs. Returns their number."""
        async with self._database.reading() as connection:
            rows = (await connection.execute(_BY_TENANT, {"tenant": tenant})).all()
        count = 0
        for row in rows:
            current: Row[Any] | None = row
            while current is not None:
                account = await self._open(current)
                sealed = await self._row(account)
                async with self._database.transaction(tenant) as connection:
                    done = await connection.execute(_RESEAL, {**sealed, "was": current.access})
                if done.rowcount == 1:
                    count += 1
                    break
                # Refreshed or disconnected meanwhile: seal the new row.
                async with self._database.reading(tenant) as connection:
                    current = (await connection.execute(_FIND, _key(account))).one_or_none()
        return count

    # ---- registrations of the gateway at authorization servers ----

    async def find_client(self, backend: str, issuer: str, redirect_uri: str) -> "StoredClient | None":
        """The client id, secret and authentication method of an earlier registration."""
        key = {"backend": backend, "issuer": issuer, "redirect_uri": redirect_uri}
        async with self._database.reading() as connection:
            row = (await connection.execute(_FIND_CLIENT, key)).one_or_none()
        if row is None:
            return None
        secret = None
        if row.secret is not None:
            secret = Secret(await self._vault.open(_client_place(backend, issuer, row.client_id), row.secret))
        return row.client_id, secret, row.method

    async def put_client(
        self, backend: str, issuer: str, redirect_uri: str, client_id: str, secret: str | None, method: str
    ) -> None:
        place = _client_place(backend, issuer, client_id)
        sealed = await self._vault.seal(place, secret) if secret is not None else None
        row = {"backend": backend, "issuer": issuer, "redirect_uri": redirect_uri, "client_id": client_id}
        async with self._database.transaction() as connection:
            await connection.execute(_PUT_CLIENT, {**row, "secret": sealed, "method": method, "now": self._clock()})

    async def reseal_clients(self) -> None:
        """Seal the secrets of all registrations with the newest shared data key."""
        async with self._database.reading() as connection:
            rows = (await connection.execute(_CLIENTS)).all()
        for row in rows:
            known = await self.find_client(row.backend, row.issuer, row.redirect_uri)
            if known is not None and known[1] is not None:
                await self.put_client(row.backend, row.issuer, row.redirect_uri, known[0], known[1].value, known[2])

    async def _row(self, account: Account) -> Json:
        refresh = None
        if account.refresh is not None:
            refresh = await self._vault.seal(account.place("refresh"), account.refresh.value)
        return {
            **_key(account),
            "id": account.id,
            "kind": account.kind,
            "state": account.state,
            "issuer": account.issuer,
            "access": await self._vault.seal(account.place("access"), account.access.value),
            "refresh": refresh,
            "client": msgspec.json.encode(account.client).decode(),
            "scopes": " ".join(account.scopes),
            "expires_at": account.expires_at,
            "lifetime": account.lifetime,
            "connected_at": account.connected_at,
        }

    async def _open(self, row: "Row[Any]") -> Account:
        account = Account(
            tenant=row.tenant,
            principal=row.principal,
            backend=row.backend,
            kind=row.kind,
            issuer=row.issuer,
            state=row.state,
            version=row.version,
            access=Secret(""),
            client=msgspec.json.decode(row.client),
            scopes=tuple(row.scopes.split()),
            expires_at=row.expires_at,
            lifetime=row.lifetime,
            connected_at=row.connected_at,
            used_at=row.used_at,
        )
        access = Secret(await self._vault.open(account.place("access"), row.access))
        refresh = None
        if row.refresh is not None:
            refresh = Secret(await self._vault.open(account.place("refresh"), row.refresh))
        return replace(account, access=access, refresh=refresh)


def account_id(backend: str, principal: str) -> str:
    """The key of an account in the change feed."""
    return f"{backend} {principal}"


def _key(account: Account) -> Json:
    return {
        "tenant": account.tenant,
        "principal": account.principal,
        "backend": account.backend,
        "version": account.version,
    }


def _client_place(backend: str, issuer: str, client_id: str) -> SealedField:
    return SealedField("", client_id, backend, issuer, "client_secret", 0)


_FIND: Final = text("SELECT * FROM accounts WHERE tenant = :tenant AND principal = :principal AND backend = :backend")
_VERSION: Final = text(
    "SELECT version FROM accounts WHERE tenant = :tenant AND principal = :principal AND backend = :backend"
)
_BY_TENANT: Final = text("SELECT * FROM accounts WHERE tenant = :tenant")
_PUT: Final = text(
    "INSERT INTO accounts (tenant, principal, backend, id, kind, state, issuer, version, access, refresh, client,"
    " scopes, expires_at, lifetime, connected_at) VALUES (:tenant, :principal, :backend, :id, :kind, :state, :issuer,"
    " :version, :access, :refresh, :client, :scopes, :expires_at, :lifetime, :connected_at)"
    " ON CONFLICT (tenant, principal, backend) DO UPDATE SET kind = excluded.kind, state = excluded.state,"
    " issuer = excluded.issuer, version = excluded.version, access = excluded.access, refresh = excluded.refresh,"
    " client = excluded.client, scopes = excluded.scopes, expires_at = excluded.expires_at,"
    " lifetime = excluded.lifetime, connected_at = excluded.connected_at, lease_owner = NULL, lease_until = 0"
)
_REPLACE: Final = text(
    "UPDATE accounts SET version = :version, access = :access, refresh = :refresh, scopes = :scopes, state = :state,"
    " expires_at = :expires_at, lifetime = :lifetime, lease_owner = NULL, lease_until = 0"
    " WHERE tenant = :tenant AND principal = :principal AND backend = :backend AND version = :before"
)
_RESEAL: Final = text(
    "UPDATE accounts SET access = :access, refresh = :refresh"
    " WHERE tenant = :tenant AND principal = :principal AND backend = :backend AND version = :version AND access = :was"
)
_LEASE: Final = text(
    "UPDATE accounts SET lease_owner = :owner, lease_until = :until"
    " WHERE tenant = :tenant AND principal = :principal AND backend = :backend"
    " AND version = :version AND lease_until <= :now AND state = 'connected'"
)
_RENEW: Final = text(
    "UPDATE accounts SET lease_until = :until"
    " WHERE tenant = :tenant AND principal = :principal AND backend = :backend"
    " AND version = :version AND lease_owner = :owner"
)
_RELEASE: Final = text(
    "UPDATE accounts SET lease_owner = NULL, lease_until = 0"
    " WHERE tenant = :tenant AND principal = :principal AND backend = :backend AND lease_owner = :owner"
)
_RECONNECT: Final = text(
    "UPDATE accounts SET state = 'reconnect', lease_owner = NULL, lease_until = 0"
    " WHERE tenant = :tenant AND principal = :principal AND backend = :backend AND version = :version"
)
_DELETE: Final = text("DELETE FROM accounts WHERE tenant = :tenant AND principal = :principal AND backend = :backend")
_LIST: Final = text(
    "SELECT tenant, principal, backend, kind, state, issuer, scopes, connected_at, used_at FROM accounts"
    " WHERE (CAST(:tenant AS TEXT) IS NULL OR tenant = :tenant)"
    " AND (CAST(:principal AS TEXT) IS NULL OR principal = :principal) ORDER BY tenant, principal, backend"
)
_USED: Final = text(
    "UPDATE accounts SET used_at = :at WHERE tenant = :tenant AND principal = :principal AND backend = :backend"
)
_FIND_CLIENT: Final = text(
    "SELECT client_id, secret, method FROM account_clients"
    " WHERE backend = :backend AND issuer = :issuer AND redirect_uri = :redirect_uri"
)
_CLIENTS: Final = text("SELECT backend, issuer, redirect_uri FROM account_clients")
_PUT_CLIENT: Final = text(
    "INSERT INTO account_clients (backend, issuer, redirect_uri, client_id, secret, method, created_at)"
    " VALUES (:backend, :issuer, :redirect_uri, :client_id, :secret, :method, :now)"
    " ON CONFLICT (backend, issuer, redirect_uri) DO UPDATE SET client_id = excluded.client_id,"
    " secret = excluded.secret, method = excluded.method, created_at = excluded.created_at"
)
