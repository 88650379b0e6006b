"""Strict JSON: one parse, and what goes on is what was checked.

What other parsers read differently (duplicate members, NaN, lone surrogates) is refused.
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
"""Members, objects and arrays together: as Python's objects they take up to twenty times their bytes."""
MAX_DIGITS: Final = 308
"""The longest integer that is certainly a finite double: a peer that reads numbers as doubles sees no infinity."""


class InvalidJson(Exception):
    """A body that is refused. `id` is the request's, where it could be read."""

    def __init__(self, code: int, message: str, id: str | int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.id = id


# ---- bytes to an object -------------------------------------------------------------------------------------------


def decode(raw: bytes) -> Json:
    """The object in `raw`. Raises `BadJson` for anything else."""
    if len(raw) <= _PLAIN_BYTES and (plain := _plain(raw)) is not None:
        return plain
    if raw[:1] != b"{":
        raw = _to_first_value(raw)
    if _may_be_deep(raw) and _too_deep(raw):
        raise InvalidJson(PARSE_ERROR, f"The body is nested deeper than {MAX_DEPTH} levels.")
    if len(raw) > MAX_PARTS and _too_many(raw):
        raise InvalidJson(INVALID_REQUEST, f"The body has more than {MAX_PARTS} members, objects and arrays.")
    try:
        text = raw.decode()
    except UnicodeDecodeError as exc:
        raise InvalidJson(PARSE_ERROR, "The body is not UTF-8.") from exc
    try:
        value, end = _decoder.raw_decode(text)
    except json.JSONDecodeError as exc:
        raise InvalidJson(PARSE_ERROR, f"The body is not JSON: it breaks off at character {exc.pos}.") from exc
    if end != len(text) and text[end:].strip(_SPACE):
        raise InvalidJson(PARSE_ERROR, f"The body goes on after its end, at character {end}.")
    if not isinstance(value, dict):
        raise InvalidJson(INVALID_REQUEST, "The body must be a JSON object.")
    body = cast("Json", value)
    # Only an escape can bring a lone surrogate into a str that was decoded from UTF-8.
    if _BACKSLASH in raw and b"\\u" in raw and _has_lone_surrogate(body):
        raise InvalidJson(PARSE_ERROR, "A string has half of a surrogate pair.")
    return body


def _plain(raw: bytes) -> Json | None:
    """The object, if writing it down again gives the same bytes, as it does for what real clients send.

    Then nothing in it can be read in two ways: a second member of a name, a NaN or half a surrogate pair would not
    have come back. It takes less than half the time of the parser that can say what is wrong.
    """
    if _may_be_deep(raw):
        return None
    try:
        value: Any = _read(raw)
        if _write(value) != raw or not isinstance(value, dict):
            return None
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    if len(raw) > MAX_DIGITS and _LONG_NUMBER.search(raw) is not None:
        return None
    return cast("Json", value)


def _to_first_value(raw: bytes) -> bytes:
    if raw.startswith(b"\xef\xbb\xbf"):
        raise InvalidJson(PARSE_ERROR, "The body starts with a byte order mark.")
    body = raw.lstrip(_SPACE.encode())
    if body.startswith(b"["):
        # Not parsed: what a batch costs does not depend on its size.
        raise InvalidJson(INVALID_REQUEST, "Batches are not supported; send one message per request.")
    return body


def _may_be_deep(raw: bytes) -> bool:
    return raw.count(b"{") + raw.count(b"[") > MAX_DEPTH


def _too_deep(raw: bytes) -> bool:
    """Exact up to the first syntax error, where the parser stops as well."""
    # The head alone first: what is deep is mostly deep from the start, and then its length costs nothing.
    return any(MAX_DEPTH + 1 in accumulate(_steps(part)) for part in (raw[:4096], raw))


def _too_many(raw: bytes) -> bool:
    if raw.count(b":") + raw.count(b"{") + raw.count(b"[") <= MAX_PARTS:
        return False
    # Some may stand in strings. Nothing is made of what is passed over, and the count stops when it is decided.
    count, part = 0, _to_part(raw)
    while part is not None and count <= MAX_PARTS:
        count, part = count + 1, _to_part(raw, part.end())
    return count > MAX_PARTS


def _steps(raw: bytes) -> "array[int]":
    return array("b", _STRING.sub(b"", raw).translate(_STEPS, _NOT_BRACKETS))


def _has_lone_surrogate(value: Json) -> bool:
    try:
        msgspec.json.encode(value)
    except UnicodeEncodeError:
        return True
    return False


def _object(pairs: list[tuple[str, Any]]) -> Json:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise InvalidJson(PARSE_ERROR, "An object has the same member twice.")
    return value


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise InvalidJson(PARSE_ERROR, f"A number has more than {MAX_DIGITS} digits.")
    return int(digits)


def _float(digits: str) -> float:
    value = float(digits)
    if value in _INFINITE:
        raise InvalidJson(PARSE_ERROR, "A number is too large.")
    return value


def _constant(name: str) -> float:
    raise InvalidJson(PARSE_ERROR, f"{name} is not JSON.")


_decoder: Final = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_integer, parse_float=_float, parse_constant=_constant
)
_read: Final = msgspec.json.Decoder().decode
_write: Final = msgspec.json.Encoder().encode
_PLAIN_BYTES: Final = 16 * 1024
_LONG_NUMBER: Final = re.compile(rb"[0-9]{%d}" % (MAX_DIGITS + 1))
_SPACE: Final = " \t\r\n"
_BACKSLASH: Final = 0x5C
_INFINITE: Final = (float("inf"), float("-inf"))
# Takes its longest match without ever backing up, an unclosed string included: linear on any input.
_STRING: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?+', re.DOTALL)
# From where it is to the next part, strings passed over whole.
_to_part: Final = re.compile(rb'(?:[^":{\[]++|"(?:[^"\\]++|\\.)*+"?+)*+[:{\[]', re.DOTALL).match
_STEPS: Final = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[{]}"))


# ---- values to bytes ----------------------------------------------------------------------------------------------


def encode(value: Any) -> bytes:
    """Compact JSON; NaN is null, half a surrogate pair is U+FFFD. Raises `TypeError` for what is not JSON-like."""
    return _encode(value, None)


def digest(value: Json) -> str:
    """SHA-256, in hex, of `value` with its members sorted: the same for the same value, whoever wrote it."""
    return sha256(_encode(value, "deterministic")).hexdigest()


def _encode(value: Any, order: Literal["deterministic"] | None) -> bytes:
    try:
        return _write(value) if order is None else msgspec.json.encode(value, order=order)
    except (TypeError, ValueError, RecursionError):
        pass
    try:
        return msgspec.json.encode(_mended(value), order=order)
    except (ValueError, RecursionError) as exc:
        raise TypeError("Nested too deep, or a number too long, for JSON.") from exc


def _mended(value: Any) -> Any:
    match value:
        case str():
            return _whole(value)
        case dict():
            members = cast("dict[Any, Any]", value)
            return {_key(name): _mended(member) for name, member in members.items()}
        case list() | tuple():
            return [_mended(item) for item in cast("list[Any]", value)]
        case _:
            return value


def _key(name: Any) -> str:
    if isinstance(name, str):
        return _whole(name)
    if name is None or isinstance(name, bool | int | float):
        return json.dumps(name)
    raise TypeError("A member's name must be a string.")


def _whole(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
