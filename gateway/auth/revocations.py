"""Revocation of tokens, token families, users and clients before they expire."""

import asyncio
import time
from collections.abc import Callable
from typing import Final, Literal, get_args

from sqlalchemy import bindparam, text
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.contract import Caller
from gateway.state.changes import Keys
from gateway.state.database import Database

Revocable = Literal["token", "family", "user", "client"]

_SWEEP_SECONDS: Final = 600.0


class Revocations:
    """Create it with `Revocations.open`. `is_revoked` reads memory, at most a second behind other processes."""

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock
        self._revoked: dict[tuple[str, str], float] = {}
        self._listeners: list[Callable[[], None]] = []
        self._loading = asyncio.Lock()
        self._next_sweep = clock() + _SWEEP_SECONDS

    @classmethod
    async def open(cls, database: Database) -> "Revocations":
        revocations = cls(database)
        await database.follow("revocations", revocations.load)
        return revocations

    def is_revoked(self, caller: Caller) -> bool:
        """Return whether the caller's token, its family, its client or its user is revoked.

        The revocation of a user applies only to tokens issued before it: a user may be added again.
        """
        if not self._revoked:
            return False
        since = self._revoked.get(("user", caller.principal))
        if since is not None and caller.issued <= since:
            return True
        return any(
            key in self._revoked
            for key in (("token", caller.token), ("family", caller.credential), ("client", caller.client))
        )

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` within a second of a revocation in any process."""
        self._listeners.append(listener)

    async def add(self, kind: Revocable, value: str, ttl: float) -> None:
        """Revoke from now on. The entry is deleted after `ttl` seconds, when every token it covers has expired."""
        async with self._database.transaction() as connection:
            added = await self.add_in_transaction(connection, kind, value, ttl)
        await self.load(added)

    async def add_in_transaction(
        self, connection: AsyncConnection, kind: Revocable, value: str, ttl: float
    ) -> frozenset[str]:
        """Revoke as part of a transaction. After the commit, pass the result to `load` to apply it at once here."""
        now = self._clock()
        await connection.execute(_ADD, {"kind": kind, "value": value, "now": now, "expires": now + ttl})
        return frozenset((f"{kind}:{value}",))

    async def load(self, keys: Keys = None) -> None:
        """Read the revocations with these keys, each `kind:value`, or all of them."""
        now = self._clock()
        if now >= self._next_sweep:
            self._next_sweep = now + _SWEEP_SECONDS
            keys = None  # removes the expired entries from memory too
            async with self._database.transaction() as connection:
                await connection.execute(_DELETE_EXPIRED, {"now": now})
        wanted = None if keys is None else {(kind, value) for kind, _, value in (key.partition(":") for key in keys)}
        async with self._loading:
            async with self._database.reading() as connection:
                if wanted is None:
                    rows = await connection.execute(_SELECT, {"now": now})
                else:
                    values = [value for _, value in wanted]
                    rows = await connection.execute(_SELECT_VALUES, {"now": now, "kinds": _KINDS, "values": values})
            revoked = {(kind, value): at for kind, value, at in rows}
            if wanted is not None:
                revoked = {key: at for key, at in self._revoked.items() if key not in wanted} | revoked
            changed, self._revoked = revoked != self._revoked, revoked
        if changed:
            for listener in self._listeners:
                listener()


_KINDS: Final = get_args(Revocable)
_ADD = text(
    "INSERT INTO revocations (kind, value, at, expires_at) VALUES (:kind, :value, :now, :expires)"
    " ON CONFLICT (kind, value) DO UPDATE SET at = excluded.at, expires_at = excluded.expires_at"
)
_DELETE_EXPIRED = text("DELETE FROM revocations WHERE expires_at <= :now")
_SELECT = text("SELECT kind, value, at FROM revocations WHERE expires_at > :now")
# With both key columns, the primary key serves as index.
_SELECT_VALUES = text(
    "SELECT kind, value, at FROM revocations WHERE kind IN :kinds AND value IN :values AND expires_at > :now"
).bindparams(bindparam("kinds", expanding=True), bindparam("values", expanding=True))
