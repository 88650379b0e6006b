"""Strict JSON and the shape of JSON-RPC messages: one parse, and what goes on is what was checked.

What other parsers read differently (duplicate members, other case, NaN, lone surrogates) is refused.
"""

import json
import re
from array import array
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from itertools import accumulate
from typing import Any, Final, Literal, cast

import msgspec

from gateway.contract import Json

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600

MAX_DEPTH: Final = 64
MAX_DIGITS: Final = 308
"""The longest integer that is certainly a finite double: a peer that reads numbers as doubles sees no infinity."""
MAX_ID_CHARS: Final = 256

ENVELOPE: Final = frozenset({"jsonrpc", "id", "method", "params", "result", "error"})
PARAMS: Final = frozenset(
    {
        *("_meta", "name", "arguments", "uri", "cursor", "inputResponses", "requestState", "task", "taskId"),
        *("ref", "argument", "context", "level", "protocolVersion", "capabilities", "clientInfo", "notifications"),
        *("requestId", "reason", "progressToken", "progress", "total", "message"),
    }
)
"""Every member that some revision gives to the params of a message from the client."""


class BadJson(Exception):
    """A body that is refused. `id` is the request's, where it could be read."""

    def __init__(self, code: int, message: str, id: str | int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.id = id


@dataclass(frozen=True, slots=True)
class Message:
    """One JSON-RPC message. `params` is empty when absent; a response has either `result` or `error`."""

    kind: Literal["request", "notification", "response"]
    id: str | int | None = None
    method: str = ""
    params: Json = field(default_factory=dict[str, Any])
    result: Json | None = None
    error: Json | None = None


# ---- bytes to an object -------------------------------------------------------------------------------------------


def decode(raw: bytes) -> Json:
    """The object in `raw`. Raises `BadJson` for anything else."""
    if raw[:1] != b"{":
        raw = _to_first_value(raw)
    if raw.count(b"{") + raw.count(b"[") > MAX_DEPTH and _too_deep(raw):
        raise BadJson(PARSE_ERROR, f"The body is nested deeper than {MAX_DEPTH} levels.")
    try:
        text = raw.decode()
    except UnicodeDecodeError as exc:
        raise BadJson(PARSE_ERROR, "The body is not UTF-8.") from exc
    try:
        value, end = _decoder.raw_decode(text)
    except json.JSONDecodeError as exc:
        raise BadJson(PARSE_ERROR, f"The body is not JSON: it breaks off at character {exc.pos}.") from exc
    if end != len(text) and text[end:].strip(_SPACE):
        raise BadJson(PARSE_ERROR, f"The body goes on after its end, at character {end}.")
    if not isinstance(value, dict):
        raise BadJson(INVALID_REQUEST, "The body must be a JSON object.")
    body = cast("Json", value)
    # Only an escape can bring a lone surrogate into a str that was decoded from UTF-8.
    if _BACKSLASH in raw and b"\\u" in raw and _has_lone_surrogate(body):
        raise BadJson(PARSE_ERROR, "A string has half of a surrogate pair.")
    return body


def _to_first_value(raw: bytes) -> bytes:
    if raw.startswith(b"\xef\xbb\xbf"):
        raise BadJson(PARSE_ERROR, "The body starts with a byte order mark.")
    body = raw.lstrip(_SPACE.encode())
    if body.startswith(b"["):
        # Not parsed: what a batch costs does not depend on its size.
        raise BadJson(INVALID_REQUEST, "Batches are not supported; send one message per request.")
    return body


def _too_deep(raw: bytes) -> bool:
    """Exact up to the first syntax error, where the parser stops as well."""
    # The head alone first: what is deep is mostly deep from the start, and then its length costs nothing.
    return any(MAX_DEPTH + 1 in accumulate(_steps(part)) for part in (raw[:4096], raw))


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
        raise BadJson(PARSE_ERROR, "An object has the same member twice.")
    return value


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise BadJson(PARSE_ERROR, f"A number has more than {MAX_DIGITS} digits.")
    return int(digits)


def _float(digits: str) -> float:
    value = float(digits)
    if value in _INFINITE:
        raise BadJson(PARSE_ERROR, "A number is too large.")
    return value


def _constant(name: str) -> float:
    raise BadJson(PARSE_ERROR, f"{name} is not JSON.")


_decoder: Final = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_integer, parse_float=_float, parse_constant=_constant
)
_SPACE: Final = " \t\r\n"
_BACKSLASH: Final = 0x5C
_INFINITE: Final = (float("inf"), float("-inf"))
# Takes its longest match without ever backing up, an unclosed string included: linear on any input.
_STRING: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?+', re.DOTALL)
_STEPS: Final = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[{]}"))


# ---- an object to a message ---------------------------------------------------------------------------------------


def message(body: Json) -> Message:
    """What `body` is in JSON-RPC 2.0 as MCP narrows it. Raises `BadJson` when it is nothing."""
    id = body.get("id")
    known_id = _is_id(id)
    try:
        if not known_id and "id" in body:
            raise BadJson(INVALID_REQUEST, "id must be a string of at most 256 characters or a 64-bit integer.")
        if body.get("jsonrpc") != "2.0":
            raise BadJson(INVALID_REQUEST, 'jsonrpc must be "2.0".')
        if not body.keys() <= ENVELOPE:
            _refuse_shadows(body, ENVELOPE)
        return _asked(body) if "method" in body else _answered(body)
    except BadJson as refusal:
        refusal.id = id if known_id else None
        raise


def _asked(body: Json) -> Message:
    method = body["method"]
    if type(method) is not str:
        raise BadJson(INVALID_REQUEST, "method must be a string.")
    if "result" in body or "error" in body:
        raise BadJson(INVALID_REQUEST, "A message has either a method or an answer.")
    params: Any = body.get("params", {})
    if not isinstance(params, dict):
        raise BadJson(INVALID_REQUEST, "params must be an object.")
    members = cast("Json", params)
    if not members.keys() <= PARAMS:
        _refuse_shadows(members, PARAMS)
    if "id" in body:
        return Message("request", body["id"], method, members)
    return Message("notification", None, method, members)


def _answered(body: Json) -> Message:
    if "id" not in body:
        raise BadJson(INVALID_REQUEST, "A message needs a method, or an id with a result or error.")
    if ("result" in body) == ("error" in body):
        raise BadJson(INVALID_REQUEST, "A response has exactly one of result and error.")
    if "params" in body:
        raise BadJson(INVALID_REQUEST, "A response has no params.")
    if "error" in body:
        return Message("response", body["id"], error=_error(body["error"]))
    if not isinstance(body["result"], dict):
        raise BadJson(INVALID_REQUEST, "result must be an object.")
    return Message("response", body["id"], result=cast("Json", body["result"]))


def _error(error: Any) -> Json:
    if not isinstance(error, dict):
        raise BadJson(INVALID_REQUEST, "error must be an object.")
    members = cast("Json", error)
    if type(members.get("code")) is not int or type(members.get("message")) is not str:
        raise BadJson(INVALID_REQUEST, "error needs an integer code and a message.")
    return members


def _is_id(id: object) -> bool:
    if type(id) is int:
        return -(2**63) <= id < 2**63
    return type(id) is str and len(id) <= MAX_ID_CHARS


def _refuse_shadows(members: Json, known: frozenset[str]) -> None:
    """A peer that ignores case, as Go's parser does, must not read another member than we did."""
    folded = _folded(known)
    for name in members.keys() - known:
        if name.casefold() in folded:
            raise BadJson(INVALID_REQUEST, "A member's name differs from a known one only in case.")


@cache
def _folded(known: frozenset[str]) -> frozenset[str]:
    return frozenset(name.casefold() for name in known)


# ---- values to bytes ----------------------------------------------------------------------------------------------


def encode(value: Any) -> bytes:
    """Compact JSON; NaN is null, half a surrogate pair is U+FFFD. Raises `TypeError` for what is not JSON-like."""
    return _encode(value, None)


def digest(value: Json) -> str:
    """SHA-256, in hex, of `value` with its members sorted: the same for the same value, whoever wrote it."""
    return sha256(_encode(value, "deterministic")).hexdigest()


def _encode(value: Any, order: Literal["deterministic"] | None) -> bytes:
    try:
        return msgspec.json.encode(value, order=order)
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
