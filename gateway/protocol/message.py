"""The shape of JSON-RPC messages, as MCP narrows it.

A member that another parser could take for one of ours, because only its case differs, is refused.
"""

from functools import cache
from typing import Any, Final, Literal, TypeGuard, cast

from msgspec import Struct

from gateway.contract import Json
from gateway.protocol.json import INVALID_REQUEST, BadJson

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


class Message(Struct, frozen=True):
    """One JSON-RPC message. `params` is empty when absent; a response has either `result` or `error`."""

    kind: Literal["request", "notification", "response"]
    id: str | int | None = None
    method: str = ""
    params: Json = {}
    result: Json | None = None
    error: Json | None = None


def message(body: Json) -> Message:
    """What `body` is in JSON-RPC 2.0 as MCP narrows it. Raises `BadJson` when it is nothing."""
    id = body.get("id")
    known_id = is_id(id)
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


def is_id(id: object) -> TypeGuard[str | int]:
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
