"""Work spans: spans that a backend opens for a part of its own work, as children of the current call's span."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from gateway.contract import CurrentCall, TracePosition
from gateway.errors import Fault, ForeignError
from gateway.telemetry.log import clean
from gateway.telemetry.span import Attributes, Span, SpanFailure

_MAX_ATTRIBUTES: Final = 16
_MAX_VALUE_CHARS: Final = 256


class FinishedWork(Struct, frozen=True):
    """A finished work span. Times are on the clock of the call's record."""

    namespace: str
    name: str
    call: CurrentCall
    position: TracePosition
    started: int
    ended: int
    attributes: Mapping[str, Any]
    exc: BaseException | None


def build_work_span(work: FinishedWork, offset: int) -> Span:
    """Build the span. `offset` converts the record's clock to Unix time.

    The backend's attributes are prefixed with its namespace.
    """
    caller = work.call.caller
    attributes: Attributes = [
        ("gatehouse.tenant", caller.tenant),
        ("gatehouse.principal", caller.principal),
        ("gatehouse.correlation_id", work.call.correlation_id),
        ("gatehouse.namespace", work.namespace),
    ]
    for key, value in list(work.attributes.items())[:_MAX_ATTRIBUTES]:
        cleaned = clean(value, _MAX_VALUE_CHARS) if isinstance(value, str) else value
        attributes.append((f"{work.namespace}.{clean(key, 64)}", cleaned))
    failure = _failure(work.exc)
    if failure is not None:
        attributes.append(("error.type", failure.type))
    name = f"{work.namespace} {clean(work.name, 64)}"
    error = None if failure is None else failure.message
    return Span(name, "internal", work.position, work.started + offset, work.ended + offset, attributes, error)


def _failure(exc: BaseException | None) -> SpanFailure | None:
    match exc:
        case None:
            return None
        case Fault():
            return SpanFailure(exc.kind.value, None, clean(exc.message, _MAX_VALUE_CHARS))
        case ForeignError():
            return SpanFailure(str(exc.code), exc.code, clean(exc.message, _MAX_VALUE_CHARS))
        case asyncio.CancelledError():
            return SpanFailure("cancelled")
        case _:
            # The class name only: the message may contain secrets.
            return SpanFailure(type(exc).__name__)
