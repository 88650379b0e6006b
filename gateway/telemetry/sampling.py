"""Each call's place in a trace, and whether it is recorded whatever becomes of it."""

from collections.abc import Mapping
from random import getrandbits, randbytes, random

from gateway.contract.trace_position import TracePosition


def new_span_id() -> str:
    return f"{getrandbits(64) or 1:016x}"


def below(place: TracePosition | None) -> TracePosition:
    """A span of its own within that one; where there is none, in a trace of its own that nobody chose to record."""
    if place is None:
        return Sampler(0.0)({})
    return TracePosition(place.trace_id, new_span_id(), place.span_id, place.sampled)


class Sampler:
    """A caller that sent a trace decides for it, where it is trusted to; of the rest a share is recorded."""

    def __init__(self, share: float, *, follow_parent: bool = True) -> None:
        self._share = share
        self._follow = follow_parent

    def __call__(self, trace: Mapping[str, str]) -> TracePosition:
        parent = trace.get("traceparent")
        if parent is None:
            ids = randbytes(24).hex()  # noqa: S311 - names, not secrets
            return TracePosition(ids[:32], ids[32:], "", random() < self._share)  # noqa: S311 - which calls are looked at
        chosen = bool(int(parent[53:55], 16) & 1) if self._follow else random() < self._share  # noqa: S311
        return TracePosition(parent[3:35], new_span_id(), parent[36:52], chosen)
