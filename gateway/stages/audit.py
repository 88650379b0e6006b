"""Every call leaves a record: who, what, the decision, the outcome. Never arguments, never secrets."""

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
from gateway.telemetry.span import target

Row = tuple[Any, ...]


class AuditSink(Protocol):
    """Where rows go. Whoever finds it full waits for it: nothing is dropped."""

    @property
    def full(self) -> bool: ...

    def put(self, row: Row) -> None: ...

    async def flush(self) -> None: ...


class Audit:
    """Notes the outcome, then hands one row to the log, which commits in groups off the hot path. A call that was
    refused on its way is told to `refused` as well."""

    def __init__(
        self, kept: AuditSink | None, refused: Callable[[Call, Fault], None] | None = None, *, strict: bool = False
    ) -> None:
        """If `strict`, nothing is answered before its record is committed."""
        self._log = kept
        self._refused = refused
        self._strict = strict

    async def __call__(self, call: Call, call_next: Handler) -> Result:
        record = call.record
        try:
            result = await call_next(call)
            if isinstance(result, dict):
                if result.get("isError"):
                    record.outcome = "tool_error"
                elif result.get("resultType") == "input_required":
                    record.outcome = "input_required"
            return result
        except Fault as exc:
            record.outcome = exc.kind.value
            # What went wrong at the backend itself, or on the way back from it, the backend knows.
            if self._refused is not None and record.stage != "dispatch":
                self._refused(call, exc)
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
            if self._log is not None:
                if self._log.full:
                    await self._log.flush()
                self._log.put(_row(call))
                if self._strict:
                    await self._log.flush()


def _row(call: Call) -> Row:
    record, caller, route = call.record, call.caller, call.resolved_route
    return (
        time.time(),
        caller.tenant,
        caller.principal,
        caller.credential,
        call.id,
        call.method,
        target(call)[:256],
        route.effect if route else None,
        record.decision,
        ",".join(record.policies),
        _digest(call.params.get("arguments")),
        record.outcome,
        (perf_counter_ns() - record.started) // 1000,
        record.position.trace_id if record.position is not None else "",
        record.context or _unasked(caller),
        record.notes.get("approved", ""),
        str(call.meta.get("actor") or "")[:256],
    )


@lru_cache(4096)
def _unasked(caller: Caller) -> str:
    """Who it was, where the call did not get as far as policy."""
    return msgspec.json.encode({"groups": sorted(caller.groups), "scopes": sorted(caller.scopes)}).decode()


def _digest(arguments: object) -> str:
    if not arguments:
        return ""
    return hashlib.sha256(_sorted(arguments)).hexdigest()


_sorted: Final = msgspec.json.Encoder(order="sorted").encode
