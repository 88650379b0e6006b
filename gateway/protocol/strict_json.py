"""Strict JSON decoding and lenient encoding.

A body is parsed once, and backends get what was checked. Bodies that two parsers may read differently (duplicate
members, NaN, lone surrogates) are rejected. Every module that reads or writes JSON-RPC uses it.
"""

import json
import re
from array import array
from hashlib import sha256
from itertools import accumulate
from typing import Any, Final, Literal, cast

import msgspec

from gateway.contract import Json

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600

MAX_DEPTH: Final = 64
MAX_PARTS: Final = 50_000
"""Maximum members, objects and arrays in total: as Python objects they take up to twenty times their encoded size."""
MAX_DIGITS: Final = 308
"""Longest integer that always fits a finite double, so that a peer that uses doubles does not read infinity."""


class InvalidJson(Exception):
    """A body is rejected. `id` is the request id if it could be read."""

    def __init__(self, code: int, message: str, id: str | int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.id = id


# ---- decoding -----------------------------------------------------------------------------------------------------


def decode(raw: bytes) -> Json:
    """Decode a JSON object. Raises `InvalidJson` for anything else."""
    if len(raw) <= _MAX_CANONICAL_BYTES and (canonical := _decode_canonical(raw)) is not None:
        return canonical
    if raw[:1] != b"{":
        raw = _strip_whitespace(raw)
    if _may_be_too_deep(raw) and _is_too_deep(raw):
        raise InvalidJson(PARSE_ERROR, f"The body is nested deeper than {MAX_DEPTH} levels.")
    if len(raw) > MAX_PARTS and _has_too_many_parts(raw):
        raise InvalidJson(INVALID_REQUEST, f"The body has more than {MAX_PARTS} members, objects and arrays.")
    try:
        text = raw.decode()
    except UnicodeDecodeError as exc:
        raise InvalidJson(PARSE_ERROR, "The body is not UTF-8.") from exc
    try:
        value, end = _decoder.raw_decode(text)
    except json.JSONDecodeError as exc:
        raise InvalidJson(PARSE_ERROR, f"The body is not valid JSON: syntax error at character {exc.pos}.") from exc
    if end != len(text) and text[end:].strip(_SPACE):
        raise InvalidJson(PARSE_ERROR, f"The body has extra data after the JSON value, at character {end}.")
    if not isinstance(value, dict):
        raise InvalidJson(INVALID_REQUEST, "The body must be a JSON object.")
    body = cast("Json", value)
    # Text decoded from UTF-8 can contain a lone surrogate only through an escape.
    if _BACKSLASH in raw and b"\\u" in raw and _has_lone_surrogate(body):
        raise InvalidJson(PARSE_ERROR, "A string contains an unpaired surrogate.")
    return body


def _decode_canonical(raw: bytes) -> Json | None:
    """Decode an object that encodes to the same bytes again, as the bodies of most clients do; None for others.

    Such a body is unambiguous: duplicate members, NaN and lone surrogates do not survive the round trip. This takes
    less than half the time of the parser that reports what is wrong.
    """
    if _may_be_too_deep(raw):
        return None
    try:
        value: Any = _fast_decode(raw)
        if _fast_encode(value) != raw or not isinstance(value, dict):
            return None
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    if len(raw) > MAX_DIGITS and _LONG_NUMBER.search(raw) is not None:
        return None
    return cast("Json", value)


def _strip_whitespace(raw: bytes) -> bytes:
    if raw.startswith(b"\xef\xbb\xbf"):
        raise InvalidJson(PARSE_ERROR, "The body starts with a byte order mark.")
    body = raw.lstrip(_SPACE.encode())
    if body.startswith(b"["):
        # Rejected without parsing, so that the cost does not depend on the size of the batch.
        raise InvalidJson(INVALID_REQUEST, "Batches are not supported; send one message per request.")
    return body


def _may_be_too_deep(raw: bytes) -> bool:
    return raw.count(b"{") + raw.count(b"[") > MAX_DEPTH


def _is_too_deep(raw: bytes) -> bool:
    """Return whether the nesting exceeds `MAX_DEPTH`. Exact up to the first syntax error, where the parser stops."""
    # The first bytes are checked first: hostile bodies are usually deep from the start, whatever their length.
    return any(MAX_DEPTH + 1 in accumulate(_depth_steps(part)) for part in (raw[:4096], raw))


def _has_too_many_parts(raw: bytes) -> bool:
    if raw.count(b":") + raw.count(b"{") + raw.count(b"[") <= MAX_PARTS:
        return False
    # Some of these characters may be inside strings: count exactly, without allocation, and stop at the maximum.
    count, part = 0, _match_to_part(raw)
    while part is not None and count <= MAX_PARTS:
        count, part = count + 1, _match_to_part(raw, part.end())
    return count > MAX_PARTS


def _depth_steps(raw: bytes) -> "array[int]":
    return array("b", _STRING.sub(b"", raw).translate(_DEPTH_STEPS, _NOT_BRACKETS))


def _has_lone_surrogate(value: Json) -> bool:
    try:
        msgspec.json.encode(value)
    except UnicodeEncodeError:
        return True
    return False


def _build_object(pairs: list[tuple[str, Any]]) -> Json:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise InvalidJson(PARSE_ERROR, "An object has a duplicate member.")
    return value


def _parse_integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise InvalidJson(PARSE_ERROR, f"A number has more than {MAX_DIGITS} digits.")
    return int(digits)


def _parse_float(digits: str) -> float:
    value = float(digits)
    if value in _INFINITE:
        raise InvalidJson(PARSE_ERROR, "A number is too large.")
    return value


def _reject_constant(name: str) -> float:
    raise InvalidJson(PARSE_ERROR, f"{name} is not JSON.")


_decoder: Final = json.JSONDecoder(
    object_pairs_hook=_build_object, parse_int=_parse_integer, parse_float=_parse_float, parse_constant=_reject_constant
)
_fast_decode: Final = msgspec.json.Decoder().decode
_fast_encode: Final = msgspec.json.Encoder().encode
_MAX_CANONICAL_BYTES: Final = 16 * 1024
_LONG_NUMBER: Final = re.compile(rb"[0-9]{%d}" % (MAX_DIGITS + 1))
_SPACE: Final = " \t\r\n"
_BACKSLASH: Final = 0x5C
_INFINITE: Final = (float("inf"), float("-inf"))
# Possessive quantifiers, no backtracking: linear on any input, including an unclosed string.
_STRING: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?+', re.DOTALL)
# Matches up to the next part and skips whole strings.
_match_to_part: Final = re.compile(rb'(?:[^":{\[]++|"(?:[^"\\]++|\\.)*+"?+)*+[:{\[]', re.DOTALL).match
_DEPTH_STEPS: Final = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[{]}"))


# ---- encoding -----------------------------------------------------------------------------------------------------


def encode(value: Any) -> bytes:
    """Encode compact JSON; NaN becomes null, a lone surrogate U+FFFD. Raises `TypeError` for other types."""
    return _encode(value, None)


def digest(value: Json) -> str:
    """Return the hex SHA-256 of `value` with sorted members: equal values have equal digests."""
    return sha256(_encode(value, "deterministic")).hexdigest()


def _encode(value: Any, order: Literal["deterministic"] | None) -> bytes:
    try:
        return _fast_encode(value) if order is None else msgspec.json.encode(value, order=order)
    except (TypeError, ValueError, RecursionError):
        pass
    try:
        return msgspec.json.encode(_sanitize(value), order=order)
    except (ValueError, RecursionError) as exc:
        raise TypeError("The value is nested too deep, or has a number that is too long, for JSON.") from exc


def _sanitize(value: Any) -> Any:
    match value:
        case str():
            return _replace_surrogates(value)
        case dict():
            members = cast("dict[Any, Any]", value)
            return {_encode_key(name): _sanitize(member) for name, member in members.items()}
        case list() | tuple():
            return [_sanitize(item) for item in cast("list[Any]", value)]
        case _:
            return value


def _encode_key(name: Any) -> str:
    if isinstance(name, str):
        return _replace_surrogates(name)
    if name is None or isinstance(name, bool | int | float):
        return json.dumps(name)
    raise TypeError("A member's name must be a string.")


def _replace_surrogates(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
