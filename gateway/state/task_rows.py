"""Rows of the table `tasks`: calls that outlive the connection of their client. `gateway.tasks` uses this module.

A running task belongs to the worker in `worker` until `lease_until`. Every write of a worker names its attempt, so a
worker that lost its lease cannot change the task any more. The content columns are opaque here; they are sealed.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, Literal

from sqlalchemy import bindparam, text

from gateway.errors import Fault, Kind
from gateway.state.database import Database

TaskState = Literal["held", "queued", "working", "input_required", "completed", "failed", "cancelled"]
TERMINAL: Final = frozenset({"completed", "failed", "cancelled"})
_ACTIVE: Final = ("held", "queued", "working", "input_required")
_LEASED: Final = ("queued", "working", "input_required")
_SWEEP_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class TaskRow:
    """One task. Times are Unix times."""

    id: str
    public_id: str
    """The id that the client has."""
    tenant: str
    principal: str
    kind: Literal["managed", "upstream"]
    namespace: str
    tool: str
    """Canonical id of the tool."""
    state: TaskState
    created_at: float
    updated_at: float
    deadline_at: float
    """A task that has not ended by then fails."""
    ttl: float | None
    """Seconds from the creation for which the client was promised the task; None without such a promise."""
    expires_at: float
    """When the row is deleted."""
    request: str
    message: str = ""
    hold_key: str = ""
    worker: str = ""
    attempt: int = 0
    lease_until: float = 0.0
    sent: bool = False
    repeatable: bool = False
    """Whether the call may be sent again after the backend may have got it."""
    cancelling: bool = False
    bytes: int = 0
    """Size of the content columns."""
    upstream: str = ""
    input: str = ""
    answers: str = ""
    notes: str = ""
    outcome: str = ""

    @property
    def is_terminal(self) -> bool:
        return self.state in TERMINAL


@dataclass(frozen=True, slots=True)
class TaskQuota:
    """Maximum tasks that have not ended, and bytes kept."""

    per_principal: int
    per_tenant: int
    bytes_per_tenant: int


class TaskRows:
    """The tasks of all tenants, shared by all processes."""

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock
        self._next_sweep = 0.0

    async def insert(self, row: TaskRow, quota: TaskQuota) -> None:
        """Add a task. Raises `Fault(RATE_LIMITED)` if its principal or tenant has too many."""
        async with self._database.transaction() as connection:
            counts = (await connection.execute(_COUNT, {"tenant": row.tenant, "principal": row.principal})).one()
            _check_quota(counts, quota, row.bytes)
            await connection.execute(_INSERT, _values(row))

    async def find(self, id: str) -> TaskRow | None:
        async with self._database.reading() as connection:
            found = (await connection.execute(_FIND, {"id": id, "now": self._clock()})).one_or_none()
        return None if found is None else _row(found)

    async def list(self, tenant: str, principal: str, limit: int, offset: int) -> Sequence[TaskRow]:
        """The principal's tasks, newest first."""
        values = {"tenant": tenant, "principal": principal, "now": self._clock(), "limit": limit, "offset": offset}
        async with self._database.reading() as connection:
            return [_row(each) for each in await connection.execute(_LIST, values)]

    async def usage(self) -> Sequence[tuple[str, str, int, int]]:
        """Tenant, state, number and bytes of all tasks, for operators."""
        async with self._database.reading() as connection:
            return [tuple(each) for each in await connection.execute(_USAGE)]  # type: ignore[misc]

    # ---- the worker that runs the task ----

    async def update(self, id: str, attempt: int, **columns: Any) -> bool:
        """Change columns of a task that this attempt still runs. Returns False if it does not."""
        return await self._change(id, columns, "attempt = :attempt AND state IN :active", {"attempt": attempt})

    async def has_space(self, tenant: str, size: int, quota: TaskQuota) -> bool:
        """Whether the tenant's tasks may keep this many bytes more."""
        async with self._database.reading() as connection:
            kept = (await connection.execute(_KEPT, {"tenant": tenant})).scalar_one_or_none()
        return int(kept or 0) + size <= quota.bytes_per_tenant

    async def ids_of(self, worker: str) -> frozenset[str]:
        """The tasks that still exist and belong to this worker."""
        async with self._database.reading() as connection:
            return frozenset(row.id for row in await connection.execute(_OF_WORKER, {"worker": worker}))

    async def set_upstream_state(self, id: str, **columns: Any) -> None:
        """Record what the server said about a task of its own."""
        await self._change(id, columns, "kind = 'upstream'", {})

    async def extend_leases(self, worker: str, until: float) -> None:
        async with self._database.transaction() as connection:
            await connection.execute(_EXTEND, {"worker": worker, "until": until})

    async def requests_for(self, worker: str) -> Sequence[TaskRow]:
        """Tasks of this worker that a client cancelled or answered."""
        async with self._database.reading() as connection:
            return [_row(each) for each in await connection.execute(_REQUESTS, {"worker": worker})]

    async def abandoned(self, limit: int = 100) -> Sequence[TaskRow]:
        """Tasks that no worker runs: their worker stopped, or they were released."""
        async with self._database.reading() as connection:
            return [_row(each) for each in await connection.execute(_ABANDONED, {"now": self._clock(), "limit": limit})]

    async def overdue(self) -> Sequence[TaskRow]:
        """Tasks that no worker runs and whose deadline has passed."""
        async with self._database.reading() as connection:
            return [_row(each) for each in await connection.execute(_OVERDUE, {"now": self._clock()})]

    async def claim(self, row: TaskRow, worker: str, until: float) -> TaskRow | None:
        """Take over a task that was seen as abandoned. Returns None if another worker was faster."""
        columns = {"worker": worker, "attempt": row.attempt + 1, "lease_until": until}
        taken = await self._change(
            row.id,
            columns,
            "attempt = :seen AND worker = :was AND lease_until = :lease AND state IN :active",
            {"seen": row.attempt, "was": row.worker, "lease": row.lease_until},
        )
        return await self.find(row.id) if taken else None

    # ---- clients and operators ----

    async def add_answers(self, id: str, answers: str, input: str, state: TaskState, seen: str) -> bool:
        """Store the client's answers and the requests that are still open, unless the task changed meanwhile.

        `seen` are the answers that these add to.
        """
        columns = {"answers": answers, "input": input, "state": state}
        return await self._change(id, columns, "state = 'input_required' AND answers = :seen", {"seen": seen})

    async def cancel(self, id: str) -> bool:
        """Ask the worker to cancel; a task that no worker runs ends at once. Returns False if it has ended."""
        if await self._change(id, {"state": "cancelled"}, "state IN ('held', 'queued') AND worker = ''", {}):
            return True
        return await self._change(id, {"cancelling": 1}, "state IN :active", {})

    async def find_held(self, tenant: str, key: str) -> TaskRow | None:
        async with self._database.reading() as connection:
            found = (await connection.execute(_HELD, {"tenant": tenant, "key": key})).one_or_none()
        return None if found is None else _row(found)

    async def release(self, row: TaskRow, deadline: float) -> bool:
        """Let any worker run a held task."""
        columns = {"state": "queued", "lease_until": 0.0, "message": "", "deadline_at": deadline}
        return await self._change(row.id, columns, "state = 'held'", {})

    async def end_unowned(self, row: TaskRow, state: TaskState, outcome: str) -> bool:
        """End a task that no worker runs, as it was seen."""
        columns = {"state": state, "outcome": outcome, "input": "", "answers": ""}
        known = {"seen": row.attempt, "was": row.state}
        return await self._change(row.id, columns, "attempt = :seen AND state = :was", known)

    async def active(self, tenant: str | None = None) -> Sequence[TaskRow]:
        """Tasks that have not ended, of one tenant or all."""
        async with self._database.reading() as connection:
            rows = await connection.execute(_ACTIVE_OF, {"tenant": tenant or "", "active": _ACTIVE})
            return [_row(each) for each in rows]

    async def delete_expired(self) -> None:
        """Delete expired rows, at most once a minute."""
        now = self._clock()
        if now >= self._next_sweep:
            self._next_sweep = now + _SWEEP_SECONDS
            async with self._database.transaction() as connection:
                await connection.execute(_DELETE_EXPIRED, {"now": now})

    async def _change(self, id: str, columns: dict[str, Any], condition: str, values: dict[str, Any]) -> bool:
        known = {"updated_at": self._clock(), **columns}
        assignments = ", ".join(f"{name} = :{name}" for name in known)
        if "attempt" in columns:
            values = {key: value for key, value in values.items() if key != "attempt"}
        statement = text(f"UPDATE tasks SET {assignments} WHERE id = :id AND {condition}")  # noqa: S608 - constant names
        if ":active" in condition:
            statement = statement.bindparams(bindparam("active", expanding=True))
            values = {**values, "active": _ACTIVE}
        async with self._database.transaction() as connection:
            changed = await connection.execute(statement, {**known, **values, "id": id})
        return changed.rowcount == 1


def _check_quota(counts: Any, quota: TaskQuota, size: int) -> None:
    own, of_tenant, kept = (int(value or 0) for value in counts)
    if own >= quota.per_principal or of_tenant >= quota.per_tenant:
        limit = "per_principal" if own >= quota.per_principal else "per_tenant"
        message = "Too many tasks are running. Wait for some of them to end, or cancel them."
        raise Fault(Kind.RATE_LIMITED, message, retry_after=5.0, details={"limit": f"tasks.{limit}"})
    if kept + size > quota.bytes_per_tenant:
        message = "The tenant's tasks keep too much data. Fetch results sooner, or wait until old tasks expire."
        raise Fault(Kind.RATE_LIMITED, message, retry_after=60.0, details={"limit": "tasks.bytes_per_tenant"})


def _row(found: Any) -> TaskRow:
    values: dict[str, Any] = {name: getattr(found, name) for name in _NAMES}
    for flag in ("sent", "repeatable", "cancelling"):
        values[flag] = bool(values[flag])
    return TaskRow(**values)


def _values(row: TaskRow) -> dict[str, Any]:
    values: dict[str, Any] = {name: getattr(row, name) for name in _NAMES}
    return values | {flag: int(values[flag]) for flag in ("sent", "repeatable", "cancelling")}


_NAMES: Final = tuple(each.name for each in fields(TaskRow))
_COLUMNS: Final = ", ".join(_NAMES)
_INSERT = text(f"INSERT INTO tasks ({_COLUMNS}) VALUES ({', '.join(f':{name}' for name in _NAMES)})")  # noqa: S608
_FIND = text(f"SELECT {_COLUMNS} FROM tasks WHERE id = :id AND expires_at > :now")  # noqa: S608
_LIST = text(
    f"SELECT {_COLUMNS} FROM tasks WHERE tenant = :tenant AND principal = :principal AND expires_at > :now"  # noqa: S608
    " ORDER BY created_at DESC, id LIMIT :limit OFFSET :offset"
)
_STATES: Final = "state IN ('held', 'queued', 'working', 'input_required')"
_COUNT = text(
    f"SELECT SUM(CASE WHEN {_STATES} AND principal = :principal THEN 1 ELSE 0 END),"  # noqa: S608
    f" SUM(CASE WHEN {_STATES} THEN 1 ELSE 0 END), SUM(bytes) FROM tasks WHERE tenant = :tenant"
)
_KEPT = text("SELECT SUM(bytes) FROM tasks WHERE tenant = :tenant")
_OF_WORKER = text("SELECT id FROM tasks WHERE worker = :worker AND state IN ('queued', 'working', 'input_required')")
_USAGE = text("SELECT tenant, state, COUNT(*), SUM(bytes) FROM tasks GROUP BY tenant, state")
_EXTEND = text(
    "UPDATE tasks SET lease_until = :until WHERE worker = :worker AND kind = 'managed'"
    " AND state IN ('queued', 'working', 'input_required')"
)
_REQUESTS = text(
    f"SELECT {_COLUMNS} FROM tasks WHERE worker = :worker AND kind = 'managed'"  # noqa: S608
    " AND state IN ('queued', 'working', 'input_required') AND (cancelling = 1 OR answers <> '')"
)
_ABANDONED = text(
    f"SELECT {_COLUMNS} FROM tasks WHERE kind = 'managed' AND state IN ('queued', 'working', 'input_required')"  # noqa: S608
    " AND lease_until < :now ORDER BY created_at LIMIT :limit"
)
_OVERDUE = text(
    f"SELECT {_COLUMNS} FROM tasks WHERE kind = 'managed' AND state = 'held' AND deadline_at < :now"  # noqa: S608
)
_HELD = text(f"SELECT {_COLUMNS} FROM tasks WHERE tenant = :tenant AND hold_key = :key AND state = 'held'")  # noqa: S608
_ACTIVE_OF = text(
    f"SELECT {_COLUMNS} FROM tasks WHERE (:tenant = '' OR tenant = :tenant) AND state IN :active"  # noqa: S608
).bindparams(bindparam("active", expanding=True))
_DELETE_EXPIRED = text("DELETE FROM tasks WHERE expires_at <= :now")
