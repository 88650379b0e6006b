"""Correlation ids and W3C trace context. Malformed values from clients are ignored."""

import os
import re
from collections.abc import Mapping
from itertools import count
from secrets import randbits
from typing import Any, Final, TypeGuard

from gateway.contract.trace_position import HTTP_TRACEPARENT

_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}").fullmatch
_PARENT: Final = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}").fullmatch
_LATER_PARENT: Final = re.compile(r"-[\x20-\x7e]{0,200}").fullmatch
_STATE_MEMBER: Final = re.compile(
    r"(?:[a-z][a-z0-9_*/-]{0,255}|[a-z0-9][a-z0-9_*/-]{0,240}@[a-z][a-z0-9_*/-]{0,13})"
    r"=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]"
).fullmatch
_WORD: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_VALUE: Final = r"[\x21\x23-\x2b\x2d-\x3a\x3c-\x5b\x5d-\x7e]*"
_BAGGAGE_KEY: Final = re.compile(rf"{_WORD}[ \t]*=[ \t]*{_VALUE}").fullmatch
_BAGGAGE_PROPERTY: Final = re.compile(rf"{_WORD}(?:[ \t]*=[ \t]*{_VALUE})?").fullmatch

_MASK: Final = 2**64 - 1
_STRIDE: Final = 0x9E3779B97F4A7C15
_id_offset = randbits(64)
_next_number = count().__next__


def new_id() -> str:
    """Return 16 hex digits, unique within the process; processes start at random offsets."""
    return f"{(_id_offset + _next_number() * _STRIDE) & _MASK:016x}"


def _reset_after_fork() -> None:
    global _id_offset
    _id_offset = randbits(64)


os.register_at_fork(after_in_child=_reset_after_fork)


def correlate(headers: Mapping[str, str], meta: Any) -> tuple[str, dict[str, str]]:
    """Return the correlation id and the trace context of a request; `meta` is unvalidated."""
    fields: Mapping[str, Any] = meta if meta.__class__ is dict else {}
    if _NAMES.isdisjoint(headers) and _NAMES.isdisjoint(fields):
        return new_id(), {}  # the common case
    trace = trace_context(headers, fields)
    return correlation_id(headers, fields, trace), trace


_NAMES: Final = frozenset({"correlationId", "x-correlation-id", "x-request-id", "traceparent", "baggage"})


def correlation_id(
    headers: Mapping[str, str],
    meta: Mapping[str, Any] | None = None,
    trace: Mapping[str, str] | None = None,
    argument: object = None,
) -> str:
    """Return the first valid id of `_meta.correlationId`, `argument`, the headers and the trace id, or a new one.

    `headers` have lower-case names; `trace` is the result of `trace_context`.
    """
    if meta and _is_valid_id(given := meta.get("correlationId")):
        return given
    if argument is not None and _is_valid_id(argument):
        return argument
    if (given := headers.get("x-correlation-id")) is not None and _ID(given):
        return given
    if (given := headers.get("x-request-id")) is not None and _ID(given):
        return given
    if trace and (parent := trace.get("traceparent")) is not None:
        return parent[3:35]
    return new_id()


def _is_valid_id(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and _ID(value) is not None


def trace_context(headers: Mapping[str, str], meta: Mapping[str, Any] | None = None) -> dict[str, str]:
    """Return `traceparent` with its `tracestate`, and `baggage`, from `_meta` or else from the headers.

    If both have different parents, the one of `_meta` wins and the other is returned as `HTTP_TRACEPARENT`.
    """
    found: dict[str, str] = {}
    for source in (meta, headers) if meta else (headers,):
        if "traceparent" in source:
            if "traceparent" not in found:
                found |= _parent_and_state(source)
            elif found["traceparent"] != (ambient := source["traceparent"]) and _is_parent(ambient):
                found[HTTP_TRACEPARENT] = ambient
        if "baggage" in source and "baggage" not in found and _is_baggage(source["baggage"]):
            found["baggage"] = source["baggage"]
    return found


def _parent_and_state(source: Mapping[str, Any]) -> dict[str, str]:
    parent, state = source["traceparent"], source.get("tracestate")
    if not _is_parent(parent):
        return {}
    if _is_state(state):
        return {"traceparent": parent, "tracestate": state}
    return {"traceparent": parent}


def _is_parent(value: object) -> bool:
    if not isinstance(value, str) or _PARENT(value[:55]) is None:
        return False
    # A later version may append fields; this one may not.
    return len(value) == 55 or (not value.startswith("00") and _LATER_PARENT(value[55:]) is not None)


def _is_state(value: object) -> TypeGuard[str]:
    if not isinstance(value, str) or not value or len(value) > 512:
        return False
    members = [member for part in value.split(",") if (member := part.strip(" \t"))]
    keys = {member.partition("=")[0] for member in members}
    return 0 < len(members) <= 32 and len(keys) == len(members) and all(map(_STATE_MEMBER, members))


def _is_baggage(value: object) -> bool:
    if not isinstance(value, str) or not value or len(value) > 8192:
        return False
    members = value.split(",")
    return len(members) <= 64 and all(map(_is_baggage_member, members))


def _is_baggage_member(member: str) -> bool:
    pair, *properties = (part.strip(" \t") for part in member.split(";"))
    return _BAGGAGE_KEY(pair) is not None and all(map(_BAGGAGE_PROPERTY, properties))
