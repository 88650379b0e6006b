"""Rows of approvals by other people, their decisions and the grants that come from them.

`gateway.approvals` decides; this module reads and writes. Every change of state is one statement with the expected
state in its condition, so that an approval is decided and used at most once in any process.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from sqlalchemy import TextClause, text
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.state.database import Database


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRow:
    """One call that waits for approval, or waited. `arguments` is None once they were erased."""

    tenant: str
    id: str
    principal: str
    tool: str
    effect: int
    arguments: str | None
    arguments_digest: str
    definition_digest: str
    policy_version: str
    policies: str
    reason: str
    requirement: str
    """Groups and numbers as JSON."""
    correlation_id: str
    session: str | None
    state: str
    """`waiting`, `approved`, `denied`, `used`, `void`; a row past `expires_at` counts as expired."""
    created_at: float
    expires_at: float
    decided_at: float | None = None
    used_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRow:
    """What one approver decided."""

    tenant: str
    approval_id: str
    approver: str
    approver_groups: str
    decision: str
    duration: str
    reason: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantRow:
    """Permission to call one tool until `ends_at`, with a session also only in that session."""

    tenant: str
    id: str
    principal: str
    tool: str
    definition_digest: str
    policy_version: str
    session: str | None
    approver: str
    created_at: float
    ends_at: float
    revoked_at: float | None = None
    revoked_by: str | None = None


class ApprovalRows:
    """The tables `approvals`, `approval_decisions` and `approval_grants`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    # ---- approvals ----

    async def find_for_call(
        self, tenant: str, principal: str, tool: str, arguments_digest: str, now: float
    ) -> list[ApprovalRow]:
        """The approvals of the same call that have not expired, newest first."""
        key = {"tenant": tenant, "principal": principal, "tool": tool, "digest": arguments_digest, "now": now}
        async with self._database.reading() as connection:
            return await _approvals(connection, _FIND_FOR_CALL, key)

    async def add(
        self, row: ApprovalRow, per_principal: int, per_tenant: int, deliveries: Sequence[dict[str, Any]]
    ) -> ApprovalRow | None:
        """Add a waiting approval with the notifications to send; return the row that waits now.

        An equal call that already waits is returned instead. None if the principal or the tenant has too many.
        """
        values = _values(row)
        async with self._database.transaction() as connection:
            same = {**values, "digest": row.arguments_digest, "now": row.created_at}
            for known in await _approvals(connection, _FIND_FOR_CALL, same):
                if known.state in ("waiting", "approved") and binding_of(known) == binding_of(row):
                    return known
            counts = (await connection.execute(_COUNT_WAITING, same)).one()
            if counts.own >= per_principal or counts.everyone >= per_tenant:
                return None
            await connection.execute(_INSERT_APPROVAL, values)
            for delivery in deliveries:
                await connection.execute(_INSERT_DELIVERY, delivery)
        return row

    async def get(self, tenant: str, id: str) -> ApprovalRow | None:
        async with self._database.reading() as connection:
            return next(iter(await _approvals(connection, _GET, {"tenant": tenant, "id": id})), None)

    async def list(self, tenant: str, limit: int) -> "list[ApprovalRow]":
        """The approvals of a tenant, newest first."""
        async with self._database.reading() as connection:
            return await _approvals(connection, _LIST, {"tenant": tenant, "limit": limit})

    async def use(self, row: ApprovalRow, now: float) -> bool:
        """Mark an approval as used. Only the first call of any process returns True."""
        async with self._database.transaction() as connection:
            done = await connection.execute(_USE, {"tenant": row.tenant, "id": row.id, "now": now})
        return done.rowcount == 1

    # ---- decisions ----

    async def decisions(self, tenant: str, id: str) -> "list[DecisionRow]":
        async with self._database.reading() as connection:
            return await _decisions(connection, tenant, id)

    async def decide(
        self,
        decision: DecisionRow,
        is_met: "Callable[[list[DecisionRow]], bool]",
        grant: "Callable[[list[DecisionRow]], GrantRow | None]",
    ) -> str | None:
        """Record a decision and change the state of the approval; return its state, None if it no longer waits.

        `is_met(decisions)` says whether the approvals suffice; `grant(decisions)` returns a grant to add, or None.
        """
        key = {"tenant": decision.tenant, "id": decision.approval_id, "now": decision.at}
        async with self._database.transaction() as connection:
            if (await connection.execute(_IS_WAITING, key)).one_or_none() is None:
                return None
            await connection.execute(_INSERT_DECISION, _values(decision))
            decisions = await _decisions(connection, decision.tenant, decision.approval_id)
            state = "denied" if decision.decision == "deny" else "approved" if is_met(decisions) else "waiting"
            if state != "waiting":
                await connection.execute(_DECIDE, {**key, "state": state})
            if state == "approved" and (added := grant(decisions)) is not None:
                await connection.execute(_INSERT_GRANT, _values(added))
        return state

    # ---- grants ----

    async def add_grant(self, grant: GrantRow, limit: int) -> bool:
        """Add a grant. False if the principal has `limit` active ones."""
        async with self._database.transaction() as connection:
            key = {"tenant": grant.tenant, "principal": grant.principal, "now": grant.created_at}
            if (await connection.execute(_COUNT_GRANTS, key)).scalar_one() >= limit:
                return False
            await connection.execute(_INSERT_GRANT, _values(grant))
        return True

    async def find_grants(self, tenant: str, principal: str, tool: str, now: float) -> "list[GrantRow]":
        key = {"tenant": tenant, "principal": principal, "tool": tool, "now": now}
        async with self._database.reading() as connection:
            return await _grants(connection, _FIND_GRANTS, key)

    async def list_grants(self, tenant: str, now: float) -> "list[GrantRow]":
        """The active grants of a tenant, those that end first at the front."""
        async with self._database.reading() as connection:
            return await _grants(connection, _LIST_GRANTS, {"tenant": tenant, "now": now})

    async def revoke_grant(self, tenant: str, id: str, by: str, now: float) -> bool:
        async with self._database.transaction() as connection:
            key = {"tenant": tenant, "id": id, "by": by, "now": now}
            return (await connection.execute(_REVOKE_GRANT, key)).rowcount == 1

    # ---- retention ----

    async def prune(self, arguments_before: float, before: float) -> int:
        """Erase the arguments of approvals that ended before a time, and delete the rows of those before another."""
        async with self._database.transaction() as connection:
            await connection.execute(_ERASE_ARGUMENTS, {"before": arguments_before})
            for statement in _PRUNE:
                await connection.execute(statement, {"before": before})
            return (await connection.execute(_PRUNE_APPROVALS, {"before": before})).rowcount


def binding_of(row: ApprovalRow) -> tuple[str, ...]:
    """What an approval is for. A call may use it only if all parts are equal."""
    digests = (row.arguments_digest, row.definition_digest, row.policy_version)
    return (row.tenant, row.principal, row.tool, *digests, row.requirement)


async def erase_principal(connection: AsyncConnection, tenant: str, principal: str) -> None:
    """Erase the approvals and grants of a principal, and void what it approved for others and was not used."""
    for statement in _ERASE_PRINCIPAL:
        await connection.execute(statement, {"tenant": tenant, "principal": principal})


def _values(row: Any) -> dict[str, Any]:
    return {field.name: getattr(row, field.name) for field in fields(row)}


async def _approvals(connection: AsyncConnection, statement: TextClause, values: dict[str, Any]) -> list[ApprovalRow]:
    return [ApprovalRow(**row) for row in (await connection.execute(statement, values)).mappings()]


async def _grants(connection: AsyncConnection, statement: TextClause, values: dict[str, Any]) -> list[GrantRow]:
    return [GrantRow(**row) for row in (await connection.execute(statement, values)).mappings()]


async def _decisions(connection: AsyncConnection, tenant: str, id: str) -> list[DecisionRow]:
    rows = await connection.execute(_DECISIONS, {"tenant": tenant, "id": id})
    return [DecisionRow(**row) for row in rows.mappings()]


def _insert(table: str, kind: type[Any]) -> TextClause:
    names = [field.name for field in fields(kind)]
    placeholders = ", ".join(f":{name}" for name in names)
    return text(f"INSERT INTO {table} ({', '.join(names)}) VALUES ({placeholders})")  # noqa: S608 - fixed names


_INSERT_APPROVAL: Final = _insert("approvals", ApprovalRow)
_INSERT_DECISION: Final = _insert("approval_decisions", DecisionRow)
_INSERT_GRANT: Final = _insert("approval_grants", GrantRow)
_INSERT_DELIVERY: Final = text(
    "INSERT INTO approval_deliveries (id, tenant, approval_id, channel, state, attempts, next_at, last_error,"
    " created_at) VALUES (:id, :tenant, :approval_id, :channel, 'waiting', 0, :created_at, '', :created_at)"
)
_FIND_FOR_CALL: Final = text(
    "SELECT * FROM approvals WHERE tenant = :tenant AND principal = :principal AND tool = :tool"
    " AND arguments_digest = :digest AND expires_at > :now ORDER BY created_at DESC LIMIT 20"
)
_COUNT_WAITING: Final = text(
    "SELECT COUNT(*) AS everyone, COALESCE(SUM(CASE WHEN principal = :principal THEN 1 ELSE 0 END), 0) AS own"
    " FROM approvals WHERE tenant = :tenant AND state = 'waiting' AND expires_at > :now"
)
_GET: Final = text("SELECT * FROM approvals WHERE tenant = :tenant AND id = :id")
_LIST: Final = text("SELECT * FROM approvals WHERE tenant = :tenant ORDER BY created_at DESC LIMIT :limit")
_USE: Final = text(
    "UPDATE approvals SET state = 'used', used_at = :now"
    " WHERE tenant = :tenant AND id = :id AND state = 'approved' AND expires_at > :now"
)
_IS_WAITING: Final = text(
    "SELECT 1 FROM approvals WHERE tenant = :tenant AND id = :id AND state = 'waiting' AND expires_at > :now"
)
_DECIDE: Final = text(
    "UPDATE approvals SET state = :state, decided_at = :now WHERE tenant = :tenant AND id = :id AND state = 'waiting'"
)
_DECISIONS: Final = text("SELECT * FROM approval_decisions WHERE tenant = :tenant AND approval_id = :id ORDER BY at")
_COUNT_GRANTS: Final = text(
    "SELECT COUNT(*) FROM approval_grants WHERE tenant = :tenant AND principal = :principal AND ends_at > :now"
    " AND revoked_at IS NULL"
)
_FIND_GRANTS: Final = text(
    "SELECT * FROM approval_grants WHERE tenant = :tenant AND principal = :principal AND tool = :tool"
    " AND ends_at > :now AND revoked_at IS NULL"
)
_LIST_GRANTS: Final = text(
    "SELECT * FROM approval_grants WHERE tenant = :tenant AND ends_at > :now AND revoked_at IS NULL"
    " ORDER BY ends_at LIMIT 500"
)
_REVOKE_GRANT: Final = text(
    "UPDATE approval_grants SET revoked_at = :now, revoked_by = :by"
    " WHERE tenant = :tenant AND id = :id AND revoked_at IS NULL"
)
_ERASE_ARGUMENTS: Final = text(
    "UPDATE approvals SET arguments = NULL WHERE arguments IS NOT NULL"
    " AND COALESCE(used_at, CASE WHEN state = 'denied' THEN decided_at ELSE expires_at END) < :before"
)
_OLD: Final = "SELECT id FROM approvals WHERE created_at < :before AND expires_at < :before"
_PRUNE: Final = (
    text(f"DELETE FROM approval_decisions WHERE approval_id IN ({_OLD})"),  # noqa: S608 - fixed text
    text(f"DELETE FROM approval_deliveries WHERE approval_id IN ({_OLD})"),  # noqa: S608 - fixed text
    text("DELETE FROM approval_grants WHERE ends_at < :before"),
)
_PRUNE_APPROVALS: Final = text("DELETE FROM approvals WHERE created_at < :before AND expires_at < :before")
_OWN: Final = "SELECT id FROM approvals WHERE tenant = :tenant AND principal = :principal"
_ERASE_PRINCIPAL: Final = (
    text(f"DELETE FROM approval_decisions WHERE tenant = :tenant AND approval_id IN ({_OWN})"),  # noqa: S608
    text(f"DELETE FROM approval_deliveries WHERE tenant = :tenant AND approval_id IN ({_OWN})"),  # noqa: S608
    text("DELETE FROM approvals WHERE tenant = :tenant AND principal = :principal"),
    text(
        "UPDATE approvals SET state = 'void' WHERE tenant = :tenant AND state IN ('waiting', 'approved') AND id IN"
        " (SELECT approval_id FROM approval_decisions WHERE tenant = :tenant AND approver = :principal)"
    ),
    text("DELETE FROM approval_decisions WHERE tenant = :tenant AND approver = :principal"),
    text("DELETE FROM approval_grants WHERE tenant = :tenant AND (principal = :principal OR approver = :principal)"),
)
