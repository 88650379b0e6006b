"""Recent calls and traffic statistics, read from the audit log for the operator API, the console and `gatehouse top`.

Nothing is written for it, so it adds no cost to calls. Each query reads at most the newest `MAX_RECORDS` records, in a
thread, on its own connection.
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

from gateway.state.audit_chain import INTENT, UNKNOWN
from gateway.state.audit_sqlite import WITHOUT_ENDED_INTENTS

MAX_RECORDS: Final = 200_000
"""Maximum number of records that one query reads."""
BUCKET_BOUNDS_US: Final = (
    500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000, 2_000_000, 5_000_000,
    10_000_000, 30_000_000,
)  # fmt: skip
"""Upper bounds of the duration histogram's buckets, in microseconds."""

_RUNNING_SECONDS: Final = 60.0
"""A call that was sent and has no end is taken as running for so long; later its outcome is unknown."""

OutcomeClass = Literal["ok", "refused", "failed"]
REFUSED: Final = ("denied", "approval_required", "rate_limited", "unauthenticated")
_OK: Final = ("ok", "input_required")


@dataclass(frozen=True, slots=True)
class FinishedCall:
    """One call as recorded in the audit log."""

    # The operator API publishes the attribute docstrings as field descriptions.
    __pydantic_config__: ClassVar = {"use_attribute_docstrings": True}

    at: float
    """Unix time at which the call finished."""
    tenant: str
    principal: str
    correlation_id: str
    method: str
    target: str
    """Canonical id of the tool, or the name that the client sent."""
    effect: int | None
    decision: str
    policies: str
    outcome: str
    duration_us: int
    trace_id: str


@dataclass(frozen=True, slots=True)
class VisibleCall(FinishedCall):
    """A finished call with the fields that only the console shows."""

    context: str
    approved: str
    actor: str

    @property
    def outcome_class(self) -> OutcomeClass:
        return classify_outcome(self.outcome)


class CallFilter(Struct, frozen=True):
    """Criteria for finding calls. Empty criteria match every call."""

    tenant: str | None = None
    """None matches every tenant."""
    id: str = ""
    """A complete correlation id or trace id."""
    outcome: str = ""
    """A fault kind, or one of `ok`, `refused`, `failed` (neither of the two), `bad` (refused or failed)."""
    target: str = ""
    """Substring of the tool's canonical id."""
    principal: str = ""
    """Substring of the principal."""
    slower_us: int = 0
    since: float = 0.0
    before: float = 0.0
    limit: int = 50


class ToolTraffic(Struct, frozen=True):
    """Usage of one tool within a period."""

    target: str
    calls: int
    bad: int
    mean_us: float
    longest_us: int


class Traffic(Struct, frozen=True):
    """Call statistics of a period, in slots of equal width, oldest first."""

    since: float
    width: float
    ok: Sequence[int]
    refused: Sequence[int]
    failed: Sequence[int]
    median_us: Sequence[float]
    """Median duration of each slot; 0 for a slot without calls."""
    histogram: Sequence[int]
    """Number of calls per duration bucket; see `BUCKET_BOUNDS_US`."""
    tools: Sequence[ToolTraffic]
    cut: bool = False
    """Whether the period has more than `MAX_RECORDS` calls. Then only the newest are counted."""

    @property
    def calls(self) -> int:
        return sum(self.ok) + sum(self.refused) + sum(self.failed)

    def percentile(self, share: float) -> float:
        """Return the duration in microseconds that `share` of the calls did not exceed; 0 without calls."""
        return percentile(self.histogram, share)


def classify_outcome(outcome: str) -> OutcomeClass:
    return "ok" if outcome in _OK else "refused" if outcome in REFUSED else "failed"


def percentile(histogram: Sequence[int], share: float) -> float:
    """Return a percentile of a duration histogram, interpolated linearly within its bucket."""
    rank, counted = share * sum(histogram), 0
    for at, count in enumerate(histogram):
        if count and counted + count >= rank:
            low = BUCKET_BOUNDS_US[at - 1] if at else 0
            high = BUCKET_BOUNDS_US[at] if at < len(BUCKET_BOUNDS_US) else BUCKET_BOUNDS_US[-1] * 2
            return low + (high - low) * (rank - counted) / count
        counted += count
    return 0.0


class CallHistory:
    """Reads the audit log in the database at `url`, or in the file at `path`. A missing file means no calls."""

    def __init__(self, path: Path, url: str | None = None) -> None:
        self._path = path
        self._url = url

    async def find(self, criteria: CallFilter) -> list[VisibleCall]:
        """Return the matching calls, newest first."""
        return await asyncio.to_thread(self.find_sync, criteria)

    async def traffic(self, tenant: str | None, seconds: float, slots: int) -> Traffic:
        """Return the statistics of the last `seconds`, divided into `slots`."""
        return await asyncio.to_thread(self.traffic_sync, tenant, seconds, slots)

    def find_sync(self, criteria: CallFilter) -> list[VisibleCall]:
        parameters = {
            "tenant": criteria.tenant,
            "since": criteria.since,
            "before": criteria.before or 1e18,
            "id": criteria.id,
            "outcome": criteria.outcome,
            "target": f"%{_escape_like(criteria.target)}%",
            "principal": f"%{_escape_like(criteria.principal)}%",
            "slower": criteria.slower_us,
            "limit": criteria.limit,
            "maximum": MAX_RECORDS,
            "running": time.time() - _RUNNING_SECONDS,
        }
        newest = _newest(criteria.tenant)
        sql = f"SELECT {_COLUMNS} FROM ({newest}) AS newest WHERE {_FILTER} ORDER BY at DESC LIMIT :limit"  # noqa: S608
        return [VisibleCall(*row) for row in self._read(sql, parameters, criteria.tenant)]

    def traffic_sync(self, tenant: str | None, seconds: float, slots: int) -> Traffic:
        width = seconds / slots
        # Slots start at multiples of their width, so that repeated queries return the same slots.
        since = (time.time() // width + 1) * width - seconds
        parameters = {
            "tenant": tenant,
            "since": since,
            "before": 1e18,
            "width": width,
            "maximum": MAX_RECORDS,
            "running": time.time() - _RUNNING_SECONDS,
        }
        slot = "CAST((at - :since) / :width AS INTEGER)" if self._url is None else "floor((at - :since) / :width)::int"
        rows = self._read(_SLOTS.format(newest=_newest(tenant), slot=slot), parameters, tenant)
        tools = self._read(_TOOLS.format(newest=_newest(tenant)), parameters, tenant)
        counts: dict[OutcomeClass, list[int]] = {"ok": [0] * slots, "refused": [0] * slots, "failed": [0] * slots}
        durations = [[0] * (len(BUCKET_BOUNDS_US) + 1) for _ in range(slots)]
        histogram = [0] * (len(BUCKET_BOUNDS_US) + 1)
        for slot, outcome, bucket, count in rows:
            slot = min(slot, slots - 1)
            counts[classify_outcome(outcome)][slot] += count
            durations[slot][bucket] += count
            histogram[bucket] += count
        medians = [percentile(buckets, 0.5) for buckets in durations]
        tool_traffic = [ToolTraffic(*row) for row in tools]
        truncated = sum(histogram) >= MAX_RECORDS
        return Traffic(
            since, width, counts["ok"], counts["refused"], counts["failed"], medians, histogram, tool_traffic, truncated
        )

    def _read(self, sql: str, parameters: dict[str, Any], tenant: str | None) -> list[Any]:
        if self._url is not None:
            # asyncpg is an optional extra and slow to import.
            from gateway.state.audit_postgres import PostgresAuditTables

            with closing(PostgresAuditTables(self._url)) as tables:
                return tables.query(sql, parameters, tenant)
        if not self._path.exists():
            return []
        with closing(sqlite3.connect(self._path, timeout=5.0)) as connection:
            connection.execute("PRAGMA query_only=ON")
            return connection.execute(sql, parameters).fetchall()


def _newest(tenant: str | None) -> str:
    tenant_filter = "" if tenant is None else "tenant = :tenant AND "
    ended = f"{WITHOUT_ENDED_INTENTS} AND (outcome <> '{INTENT}' OR at < :running)"
    period = f"{tenant_filter}at >= :since AND at < :before AND {ended}"
    return f"SELECT {_LISTED} FROM audit WHERE {period} ORDER BY at DESC LIMIT :maximum"  # noqa: S608


def _escape_like(text: str) -> str:
    """Escape the wildcards of LIKE."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


_COLUMNS: Final = ", ".join(field.name for field in fields(VisibleCall))
_LISTED: Final = _COLUMNS.replace(
    "outcome", f"CASE outcome WHEN '{INTENT}' THEN '{UNKNOWN}' ELSE outcome END AS outcome"
)
_IS_OK: Final = f"outcome IN {_OK!r}"
_IS_REFUSED: Final = f"outcome IN {REFUSED!r}"
_FILTER: Final = f"""
    (:id = '' OR correlation_id = :id OR trace_id = :id)
    AND CASE :outcome WHEN '' THEN 1 = 1 WHEN 'ok' THEN {_IS_OK} WHEN 'refused' THEN {_IS_REFUSED}
        WHEN 'failed' THEN NOT {_IS_OK} AND NOT {_IS_REFUSED} WHEN 'bad' THEN NOT {_IS_OK}
        ELSE outcome = :outcome END
    AND target LIKE :target ESCAPE '\\' AND principal LIKE :principal ESCAPE '\\' AND duration_us >= :slower
"""
_BUCKET_CASES: Final = " ".join(f"WHEN duration_us <= {bound} THEN {at}" for at, bound in enumerate(BUCKET_BOUNDS_US))
_SLOTS: Final = f"""
    SELECT {{slot}}, outcome, CASE {_BUCKET_CASES} ELSE {len(BUCKET_BOUNDS_US)} END, count(*)
    FROM ({{newest}}) AS newest GROUP BY 1, 2, 3
"""  # noqa: S608
_TOOLS: Final = f"""
    SELECT target, count(*) AS calls, sum(CASE WHEN {_IS_OK} THEN 0 ELSE 1 END),
        CAST(avg(duration_us) AS DOUBLE PRECISION), max(duration_us) FROM ({{newest}}) AS newest
    WHERE method = 'tools/call' GROUP BY target ORDER BY calls DESC, target LIMIT 200
"""  # noqa: S608
