"""A piece of a module's own work, as a span below the call that it is done for."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from gateway.contract import CurrentCall, TracePosition
from gateway.errors import Fault, ForeignError
from gateway.telemetry.log import clean
from gateway.telemetry.span import Attributes, Span, SpanFailure

_MOST_ABOUT: Final = 16
_LONGEST: Final = 256


class FinishedWork(Struct, frozen=True):
    """A piece that ended. Times are by the clock of a call's record."""

    namespace: str
    name: str
    here: CurrentCall
    place: TracePosition
    started: int
    ended: int
    about: Mapping[str, Any]
    exc: BaseException | None


def piece_span(done: FinishedWork, offset: int) -> Span:
    """`offset` turns its clock into Unix time. What a module says of it stands under the module's own name."""
    caller = done.here.caller
    attributes: Attributes = [
        ("gatehouse.tenant", caller.tenant),
        ("gatehouse.principal", caller.principal),
        ("gatehouse.correlation_id", done.here.correlation_id),
        ("gatehouse.namespace", done.namespace),
    ]
    for key, value in list(done.about.items())[:_MOST_ABOUT]:
        told = clean(value, _LONGEST) if isinstance(value, str) else value
        attributes.append((f"{done.namespace}.{clean(key, 64)}", told))
    failed = _failure(done.exc)
    if failed is not None:
        attributes.append(("error.type", failed.type))
    name = f"{done.namespace} {clean(done.name, 64)}"
    error = None if failed is None else failed.message
    return Span(name, "internal", done.place, done.started + offset, done.ended + offset, attributes, error)


def _failure(exc: BaseException | None) -> SpanFailure | None:
    match exc:
        case None:
            return None
        case Fault():
            return SpanFailure(exc.kind.value, None, clean(exc.message, _LONGEST))
        case ForeignError():
            return SpanFailure(str(exc.code), exc.code, clean(exc.message, _LONGEST))
        case asyncio.CancelledError():
            return SpanFailure("cancelled")
        case _:
            # Its class only: what an exception says may hold anything.
            return SpanFailure(type(exc).__name__)
