"""Record of used approvals, shared by all processes. The approval stage uses it to accept each approval only once."""

import time
from collections.abc import Callable
from typing import Final

from sqlalchemy import text

from gateway.state.database import Database

RETENTION_SECONDS: Final = 1200.0
"""Longer than any approval is valid: a deleted row cannot be used again."""


class Approvals:
    """Marks approvals as used. At most one `use` of an approval succeeds, in any process."""

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    async def redeem(self, tenant: str, id: str) -> bool:
        """Mark the approval as used. Returns False when it was used before."""
        now = self._clock()
        async with self._database.transaction() as connection:
            await connection.execute(_DELETE_EXPIRED, {"now": now})
            inserted = await connection.execute(
                _INSERT, {"tenant": tenant, "id": id, "expires": now + RETENTION_SECONDS}
            )
        return inserted.rowcount == 1


_DELETE_EXPIRED: Final = text("DELETE FROM used_approvals WHERE expires_at <= :now")
_INSERT: Final = text(
    "INSERT INTO used_approvals (tenant, id, expires_at) VALUES (:tenant, :id, :expires) ON CONFLICT DO NOTHING"
)
