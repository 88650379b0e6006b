"""Notifications about approvals that are to be sent, shared by all processes; each is claimed by one of them."""

from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import text

from gateway.state.database import Database

CLAIM_SECONDS: Final = 60.0
"""A process that claimed a notification and died releases it after this time."""


@dataclass(frozen=True, slots=True)
class ApprovalDelivery:
    """One notification to one channel."""

    id: str
    tenant: str
    approval_id: str
    channel: str
    attempts: int


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A notification that could not be delivered."""

    id: str
    tenant: str
    approval_id: str
    channel: str
    attempts: int
    last_error: str
    created_at: float


class ApprovalDeliveries:
    """The table `approval_deliveries`. `gateway.approvals.delivery` sends what `claim` returns."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def claim(self, now: float, limit: int = 20) -> list[ApprovalDelivery]:
        """Claim notifications that are due. No other process gets them before `CLAIM_SECONDS` have passed."""
        async with self._database.reading() as connection:
            due = (await connection.execute(_DUE, {"now": now, "limit": limit})).all()
        if not due:
            return []
        claimed: list[ApprovalDelivery] = []
        async with self._database.transaction() as connection:
            for row in due:
                values = {"id": row.id, "next_at": row.next_at, "until": now + CLAIM_SECONDS}
                if (await connection.execute(_CLAIM, values)).rowcount == 1:
                    claimed.append(ApprovalDelivery(row.id, row.tenant, row.approval_id, row.channel, row.attempts))
        return claimed

    async def finish(self, id: str) -> None:
        """Record a successful delivery."""
        await self._execute(_FINISH, {"id": id})

    async def fail(self, id: str, error: str, retry_at: float | None) -> None:
        """Record a failed attempt, to be repeated at `retry_at`; without it, the notification is a dead letter."""
        state = "dead" if retry_at is None else "waiting"
        await self._execute(_FAIL, {"id": id, "error": error[:300], "state": state, "next_at": retry_at or 0.0})

    async def dead_letters(self, tenant: str) -> list[DeadLetter]:
        """The notifications of a tenant that could not be delivered, newest first."""
        async with self._database.reading() as connection:
            rows = await connection.execute(_DEAD, {"tenant": tenant})
            return [
                DeadLetter(
                    row.id, row.tenant, row.approval_id, row.channel, row.attempts, row.last_error, row.created_at
                )
                for row in rows
            ]

    async def retry(self, tenant: str, id: str, now: float) -> bool:
        """Send a dead letter again. False if there is none with this id."""
        async with self._database.transaction() as connection:
            done = await connection.execute(_RETRY, {"tenant": tenant, "id": id, "now": now})
        return done.rowcount == 1

    async def _execute(self, statement: Any, values: dict[str, Any]) -> None:
        async with self._database.transaction() as connection:
            await connection.execute(statement, values)


_DUE: Final = text(
    "SELECT * FROM approval_deliveries WHERE state = 'waiting' AND next_at <= :now ORDER BY next_at LIMIT :limit"
)
_CLAIM: Final = text(
    "UPDATE approval_deliveries SET next_at = :until, attempts = attempts + 1"
    " WHERE id = :id AND state = 'waiting' AND next_at = :next_at"
)
_FINISH: Final = text("UPDATE approval_deliveries SET state = 'sent', last_error = '' WHERE id = :id")
_FAIL: Final = text(
    "UPDATE approval_deliveries SET state = :state, last_error = :error, next_at = :next_at WHERE id = :id"
)
_DEAD: Final = text(
    "SELECT * FROM approval_deliveries WHERE tenant = :tenant AND state = 'dead' ORDER BY created_at DESC LIMIT 200"
)
_RETRY: Final = text(
    "UPDATE approval_deliveries SET state = 'waiting', attempts = 0, next_at = :now"
    " WHERE tenant = :tenant AND id = :id AND state = 'dead'"
)
