"""The last calls, read from the audit log for whoever looks. Nothing is written for it, so no call pays for it.

Every question is bounded: of the newest `MOST` records only, in a thread, on a connection of its own.
"""

import asyncio
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

from msgspec import Struct

MOST: Final = 200_000
"""So many records are looked through at most: a busy hour, or a quiet month."""
BOUNDS: Final = (
    500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000, 2_000_000, 5_000_000,
    10_000_000, 30_000_000,
)  # fmt: skip
"""Microseconds that part the bars of a histogram."""

Class = Literal["ok", "refused", "failed"]
REFUSED: Final = ("denied", "approval_required", "rate_limited", "unauthenticated")
_GOOD: Final = ("ok", "input_required")


@dataclass(frozen=True, slots=True)
class FinishedCall:
    """As the audit log has it."""

    # The operator's API shows these as they stand here.
    __pydantic_config__: ClassVar = {"use_attribute_docstrings": True}

    at: float
    """Unix time of its end."""
    tenant: str
    principal: str
    correlation_id: str
    method: str
    target: str
    """The canonical id of the tool, or what the client asked for."""
    effect: int | None
    decision: str
    policies: str
    outcome: str
    duration_us: int
    trace_id: str


@dataclass(frozen=True, slots=True)
class VisibleCall(FinishedCall):
    """With what only the console shows."""

    context: str
    approved: str
    actor: str

    @property
    def kind(self) -> Class:
        return class_of(self.outcome)


class CallFilter(Struct, frozen=True):
    """Which calls; whatever is empty does not matter."""

    tenant: str | None = None
    """None: of every tenant."""
    id: str = ""
    """A correlation id or a trace id, whole."""
    outcome: str = ""
    """A kind of fault, or one of `ok`, `refused`, `failed` (neither), `bad` (refused or failed)."""
    target: str = ""
    """Part of the tool's canonical id."""
    principal: str = ""
    """Part of it."""
    slower_us: int = 0
    since: float = 0.0
    before: float = 0.0
    limit: int = 50


class ToolTraffic(Struct, frozen=True):
    """What one tool was used for in a time."""

    target: str
    calls: int
    bad: int
    mean_us: float
    longest_us: int


class Traffic(Struct, frozen=True):
    """A time in slots of equal width, the oldest first."""

    since: float
    width: float
    ok: Sequence[int]
    refused: Sequence[int]
    failed: Sequence[int]
    median_us: Sequence[float]
    """Of each slot; 0 where nothing was called."""
    histogram: Sequence[int]
    """Calls by duration, between `BOUNDS`."""
    tools: Sequence[ToolTraffic]
    cut: bool = False
    """Whether there were more than could be looked through; then only the newest count."""

    @property
    def calls(self) -> int:
        return sum(self.ok) + sum(self.refused) + sum(self.failed)

    def percentile(self, share: float) -> float:
        """Microseconds within which that share of the calls ended; 0 without any."""
        return percentile(self.histogram, share)


def class_of(outcome: str) -> Class:
    return "ok" if outcome in _GOOD else "refused" if outcome in REFUSED else "failed"


def percentile(histogram: Sequence[int], share: float) -> float:
    """Within its bar, calls are taken to lie evenly."""
    wanted, so_far = share * sum(histogram), 0
    for at, count in enumerate(histogram):
        if count and so_far + count >= wanted:
            low = BOUNDS[at - 1] if at else 0
            high = BOUNDS[at] if at < len(BOUNDS) else BOUNDS[-1] * 2
            return low + (high - low) * (wanted - so_far) / count
        so_far += count
    return 0.0


class CallHistory:
    """Reads an audit log: in the database at `url`, else in this file; where there is none, there were no calls."""

    def __init__(self, path: Path, url: str | None = None) -> None:
        self._path = path
        self._url = url

    async def find(self, wanted: CallFilter) -> list[VisibleCall]:
        """The newest first."""
        return await asyncio.to_thread(self.find_now, wanted)

    async def traffic(self, tenant: str | None, seconds: float, slots: int) -> Traffic:
        """The last so many seconds."""
        return await asyncio.to_thread(self.traffic_now, tenant, seconds, slots)

    def find_now(self, wanted: CallFilter) -> list[VisibleCall]:
        named = {
            "tenant": wanted.tenant,
            "since": wanted.since,
            "before": wanted.before or 1e18,
            "id": wanted.id,
            "outcome": wanted.outcome,
            "target": f"%{_literal(wanted.target)}%",
            "principal": f"%{_literal(wanted.principal)}%",
            "slower": wanted.slower_us,
            "limit": wanted.limit,
            "most": MOST,
        }
        newest = _newest(wanted.tenant)
        sql = f"SELECT {_COLUMNS} FROM ({newest}) AS newest WHERE {_WANTED} ORDER BY at DESC LIMIT :limit"  # noqa: S608
        return [VisibleCall(*row) for row in self._read(sql, named, wanted.tenant)]

    def traffic_now(self, tenant: str | None, seconds: float, slots: int) -> Traffic:
        width = seconds / slots
        # Slots that begin at round times stay the same from one look to the next.
        since = (time.time() // width + 1) * width - seconds
        named = {"tenant": tenant, "since": since, "before": 1e18, "width": width, "most": MOST}
        slot = "CAST((at - :since) / :width AS INTEGER)" if self._url is None else "floor((at - :since) / :width)::int"
        rows = self._read(_SLOTS.format(newest=_newest(tenant), slot=slot), named, tenant)
        tools = self._read(_TOOLS.format(newest=_newest(tenant)), named, tenant)
        counts: dict[Class, list[int]] = {"ok": [0] * slots, "refused": [0] * slots, "failed": [0] * slots}
        slowness = [[0] * (len(BOUNDS) + 1) for _ in range(slots)]
        histogram = [0] * (len(BOUNDS) + 1)
        for slot, outcome, bar, count in rows:
            slot = min(slot, slots - 1)
            counts[class_of(outcome)][slot] += count
            slowness[slot][bar] += count
            histogram[bar] += count
        medians = [percentile(bars, 0.5) for bars in slowness]
        busy = [ToolTraffic(*row) for row in tools]
        cut = sum(histogram) >= MOST
        return Traffic(since, width, counts["ok"], counts["refused"], counts["failed"], medians, histogram, busy, cut)

    def _read(self, sql: str, named: dict[str, Any], tenant: str | None) -> list[Any]:
        if self._url is not None:
            # asyncpg is an extra, and takes time to load.
            from gateway.state.audit_postgres import PostgresAuditTables

            with closing(PostgresAuditTables(self._url)) as tables:
                return tables.query(sql, named, tenant)
        if not self._path.exists():
            return []
        with closing(sqlite3.connect(self._path, timeout=5.0)) as connection:
            connection.execute("PRAGMA query_only=ON")
            return connection.execute(sql, named).fetchall()


def _newest(tenant: str | None) -> str:
    whose = "" if tenant is None else "tenant = :tenant AND "
    return f"SELECT * FROM audit WHERE {whose}at >= :since AND at < :before ORDER BY at DESC LIMIT :most"  # noqa: S608


def _literal(text: str) -> str:
    """For LIKE: nothing in it stands for anything else."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


_COLUMNS: Final = ", ".join(field.name for field in fields(VisibleCall))
_IN_GOOD: Final = f"outcome IN {_GOOD!r}"
_IN_REFUSED: Final = f"outcome IN {REFUSED!r}"
_WANTED: Final = f"""
    (:id = '' OR correlation_id = :id OR trace_id = :id)
    AND CASE :outcome WHEN '' THEN 1 = 1 WHEN 'ok' THEN {_IN_GOOD} WHEN 'refused' THEN {_IN_REFUSED}
        WHEN 'failed' THEN NOT {_IN_GOOD} AND NOT {_IN_REFUSED} WHEN 'bad' THEN NOT {_IN_GOOD}
        ELSE outcome = :outcome END
    AND target LIKE :target ESCAPE '\\' AND principal LIKE :principal ESCAPE '\\' AND duration_us >= :slower
"""
_BARS: Final = " ".join(f"WHEN duration_us <= {bound} THEN {at}" for at, bound in enumerate(BOUNDS))
_SLOTS: Final = f"""
    SELECT {{slot}}, outcome, CASE {_BARS} ELSE {len(BOUNDS)} END, count(*)
    FROM ({{newest}}) AS newest GROUP BY 1, 2, 3
"""  # noqa: S608
_TOOLS: Final = f"""
    SELECT target, count(*) AS calls, sum(CASE WHEN {_IN_GOOD} THEN 0 ELSE 1 END),
        CAST(avg(duration_us) AS DOUBLE PRECISION), max(duration_us) FROM ({{newest}}) AS newest
    WHERE method = 'tools/call' GROUP BY target ORDER BY calls DESC, target LIMIT 200
"""  # noqa: S608
