"""What is no longer good before its time: tokens, families of tokens, users and clients."""

import asyncio
import time
from collections.abc import Callable
from typing import Final, Literal

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.contract import Caller
from gateway.state.database import Database

Revocable = Literal["token", "family", "user", "client"]

_SWEEP_EVERY: Final = 600.0


class Revocations:
    """Open it with `Revocations.open`; `holds` is then a lookup in memory, at most a second behind other processes."""

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock
        self._held: dict[tuple[str, str], float] = {}
        self._listeners: list[Callable[[], None]] = []
        self._loading = asyncio.Lock()
        self._next_sweep = clock() + _SWEEP_EVERY

    @classmethod
    async def open(cls, database: Database) -> "Revocations":
        revocations = cls(database)
        await database.follow(revocations.load)
        return revocations

    def holds(self, caller: Caller) -> bool:
        """Whether something that the caller's token rests on was revoked. A user may come back: of theirs only what was
        made before is held."""
        if not self._held:
            return False
        since = self._held.get(("user", caller.principal))
        if since is not None and caller.issued <= since:
            return True
        return any(
            key in self._held
            for key in (("token", caller.token), ("family", caller.credential), ("client", caller.client))
        )

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` within a second of a revocation, in whichever process."""
        self._listeners.append(listener)

    async def add(self, kind: Revocable, value: str, lasts: float) -> None:
        """Good for nothing from now on; forgotten after `lasts` seconds, when nothing it could refuse is left."""
        async with self._database.transaction() as connection:
            await self.add_within(connection, kind, value, lasts)
        await self.load()

    async def add_within(self, connection: AsyncConnection, kind: Revocable, value: str, lasts: float) -> None:
        """The same as part of a transaction; others learn of it when that is committed."""
        now = self._clock()
        await connection.execute(_ADD, {"kind": kind, "value": value, "now": now, "expires": now + lasts})

    async def load(self) -> None:
        now = self._clock()
        if now >= self._next_sweep:
            self._next_sweep = now + _SWEEP_EVERY
            async with self._database.transaction() as connection:
                await connection.execute(_FORGET, {"now": now})
        async with self._loading:
            async with self._database.reading() as connection:
                rows = await connection.execute(_SELECT, {"now": now})
            held = {(kind, value): at for kind, value, at in rows}
            changed, self._held = held != self._held, held
        if changed:
            for listener in self._listeners:
                listener()


_ADD = text(
    "INSERT INTO revocations (kind, value, at, expires_at) VALUES (:kind, :value, :now, :expires)"
    " ON CONFLICT (kind, value) DO UPDATE SET at = excluded.at, expires_at = excluded.expires_at"
)
_FORGET = text("DELETE FROM revocations WHERE expires_at <= :now")
_SELECT = text("SELECT kind, value, at FROM revocations WHERE expires_at > :now")
