"""The audit stage: one record for every call (caller, target, decision, outcome), one before a call that may write.

No record contains arguments or secrets.
"""

import asyncio
import hashlib
import time
from collections.abc import Callable
from functools import lru_cache
from time import perf_counter_ns
from typing import Any, Final, Protocol

import msgspec

from gateway.contract import Call, Caller, Handler, Result
from gateway.errors import Fault, ForeignError
from gateway.telemetry.span import call_target

Row = tuple[Any, ...]


class AuditSink(Protocol):
    """Queue of audit rows. A caller that finds it full must `flush` before `put`; no row is dropped."""

    @property
    def is_full(self) -> bool: ...

    def put(self, row: Row, intent: int = 0) -> int: ...

    async def commit_intent(self, row: Row) -> int:
        """Commit the row and return its number. Raises `Fault(UNAVAILABLE)` when it cannot be committed."""
        ...

    async def flush(self) -> None: ...


class Audit:
    """Records the outcome of each call and queues one audit row; the sink commits rows in groups, off the hot path.

    `on_refusal` is called for each call that a stage rejected before it reached the backend.
    """

    def __init__(
        self, sink: AuditSink | None, on_refusal: Callable[[Call, Fault], None] | None = None, *, strict: bool = False
    ) -> None:
        """If `strict`, the response waits until its record is committed. No `sink`: audit is disabled."""
        self._sink = sink
        self._on_refusal = on_refusal
        self._strict = strict

    async def __call__(self, call: Call, call_next: Handler) -> Result:
        record = call.record
        try:
            result = await call_next(call)
            if isinstance(result, dict):
                if result.get("isError"):
                    record.outcome = "tool_error"
                elif (kind := result.get("resultType")) == "input_required" or kind == "task":
                    record.outcome = kind
            return result
        except Fault as exc:
            record.outcome = exc.kind.value
            # The backend already knows about failures from `dispatch` on.
            if self._on_refusal is not None and record.stage != "dispatch":
                self._on_refusal(call, exc)
            raise
        except ForeignError as exc:
            record.outcome = f"error:{exc.code}"
            raise
        except asyncio.CancelledError:
            record.outcome = "cancelled"
            raise
        except Exception:
            record.outcome = "internal"
            raise
        finally:
            if self._sink is not None:
                if self._sink.is_full:
                    await self._sink.flush()
                self._sink.put(_row(call), record.intent)
                if self._strict:
                    await self._sink.flush()


class Intent:
    """Commits a record of a call that may write before `dispatch` sends it, so that a crash cannot hide it.

    The record of the finished call refers to it. If the record cannot be committed, the call is not sent.
    """

    def __init__(self, sink: AuditSink) -> None:
        self._sink = sink

    async def commit(self, call: Call) -> None:
        record = call.record
        record.outcome = "intent"
        try:
            record.intent = await self._sink.commit_intent(_row(call))
        finally:
            record.outcome = "ok"


def _row(call: Call) -> Row:
    record, caller, route = call.record, call.caller, call.resolved_route
    arguments = call.params.get("arguments")
    if route is not None and route.shape is not None:
        arguments = route.shape.complete(call.arguments)
    return (
        time.time(),
        caller.tenant,
        caller.principal,
        caller.credential,
        call.id,
        call.method,
        call_target(call)[:256],
        route.effect if route else None,
        record.decision,
        ",".join(record.policies),
        _digest(arguments),
        record.outcome,
        (perf_counter_ns() - record.started) // 1000,
        record.position.trace_id if record.position is not None else "",
        record.context or _caller_context(caller),
        record.notes.get("approved", ""),
        str(call.meta.get("actor") or "")[:256],
    )


@lru_cache(4096)
def _caller_context(caller: Caller) -> str:
    """The caller's groups and scopes, for calls that ended before a policy decision."""
    return msgspec.json.encode({"groups": sorted(caller.groups), "scopes": sorted(caller.scopes)}).decode()


def _digest(arguments: object) -> str:
    if not arguments:
        return ""
    return hashlib.sha256(_encode_sorted(arguments)).hexdigest()


_encode_sorted: Final = msgspec.json.Encoder(order="sorted").encode
