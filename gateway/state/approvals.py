"""Approvals that were used: each can be, once, by whichever process is asked."""

import time
from collections.abc import Callable
from typing import Final

from sqlalchemy import text

from gateway.state.database import Database

KEPT_SECONDS: Final = 1200.0
"""Longer than any approval lasts: one that is forgotten here can no longer be used anyway."""


class Approvals:
    def __init__(self, database: Database, *, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    async def use(self, tenant: str, id: str) -> bool:
        """True for the first one who asks, and for nobody after."""
        now = self._clock()
        async with self._database.transaction() as connection:
            await connection.execute(_SWEEP, {"now": now})
            taken = await connection.execute(_TAKE, {"tenant": tenant, "id": id, "expires": now + KEPT_SECONDS})
        return taken.rowcount == 1


_SWEEP: Final = text("DELETE FROM used_approvals WHERE expires_at <= :now")
_TAKE: Final = text(
    "INSERT INTO used_approvals (tenant, id, expires_at) VALUES (:tenant, :id, :expires) ON CONFLICT DO NOTHING"
)
