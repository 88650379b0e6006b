"""Parses JSON-RPC messages as MCP restricts them, and checks the parameters of each method.

Both eras parse every body with `parse_message` and check every request with `check_params`. Members whose names differ
from a known name only in case are rejected.
"""

from functools import cache
from typing import Any, Final, Literal, TypeGuard, cast

from msgspec import Struct

from gateway.contract import Json
from gateway.errors import Fault, Kind
from gateway.protocol.strict_json import INVALID_REQUEST, InvalidJson

MAX_ID_CHARS: Final = 256
ENVELOPE_MEMBERS: Final = frozenset({"jsonrpc", "id", "method", "params", "result", "error"})

KNOWN_PARAMS: Final = frozenset(
    {
        *("_meta", "name", "arguments", "uri", "cursor", "inputResponses", "requestState", "task", "taskId"),
        *("ref", "argument", "context", "level", "protocolVersion", "capabilities", "clientInfo", "notifications"),
        *("requestId", "reason", "progressToken", "progress", "total", "message"),
    }
)
"""Every member that any protocol revision defines for the params of a client message."""


class Message(Struct, frozen=True):
    """One JSON-RPC message. `params` is empty when absent; a response has either `result` or `error`."""

    kind: Literal["request", "notification", "response"]
    id: str | int | None = None
    method: str = ""
    params: Json = {}
    result: Json | None = None
    error: Json | None = None


def parse_message(body: Json) -> Message:
    """Parse a JSON-RPC 2.0 message as MCP restricts it. Raises `InvalidJson` for anything else."""
    id = body.get("id")
    known_id = is_id(id)
    try:
        if not known_id and "id" in body:
            raise InvalidJson(INVALID_REQUEST, "id must be a string of at most 256 characters or a 64-bit integer.")
        if body.get("jsonrpc") != "2.0":
            raise InvalidJson(INVALID_REQUEST, 'jsonrpc must be "2.0".')
        if not body.keys() <= ENVELOPE_MEMBERS:
            _reject_case_variants(body, ENVELOPE_MEMBERS)
        return _parse_request(body) if "method" in body else _parse_response(body)
    except InvalidJson as refusal:
        refusal.id = id if known_id else None
        raise


def _parse_request(body: Json) -> Message:
    method = body["method"]
    if type(method) is not str:
        raise InvalidJson(INVALID_REQUEST, "method must be a string.")
    if "result" in body or "error" in body:
        raise InvalidJson(INVALID_REQUEST, "A message has either a method or a result or error.")
    params: Any = body.get("params", {})
    if not isinstance(params, dict):
        raise InvalidJson(INVALID_REQUEST, "params must be an object.")
    members = cast("Json", params)
    if not members.keys() <= KNOWN_PARAMS:
        _reject_case_variants(members, KNOWN_PARAMS)
    if "id" in body:
        return Message("request", body["id"], method, members)
    return Message("notification", None, method, members)


def _parse_response(body: Json) -> Message:
    if "id" not in body:
        raise InvalidJson(INVALID_REQUEST, "A message needs a method, or an id with a result or error.")
    if ("result" in body) == ("error" in body):
        raise InvalidJson(INVALID_REQUEST, "A response has exactly one of result and error.")
    if "params" in body:
        raise InvalidJson(INVALID_REQUEST, "A response has no params.")
    if "error" in body:
        return Message("response", body["id"], error=_parse_error(body["error"]))
    if not isinstance(body["result"], dict):
        raise InvalidJson(INVALID_REQUEST, "result must be an object.")
    return Message("response", body["id"], result=cast("Json", body["result"]))


def _parse_error(error: Any) -> Json:
    if not isinstance(error, dict):
        raise InvalidJson(INVALID_REQUEST, "error must be an object.")
    members = cast("Json", error)
    if type(members.get("code")) is not int or type(members.get("message")) is not str:
        raise InvalidJson(INVALID_REQUEST, "error needs an integer code and a message.")
    return members


def is_id(id: object) -> TypeGuard[str | int]:
    """Return whether `id` is a valid request id."""
    if type(id) is int:
        return -(2**63) <= id < 2**63
    return type(id) is str and len(id) <= MAX_ID_CHARS


def _reject_case_variants(members: Json, known: frozenset[str]) -> None:
    """Reject names that a case-insensitive parser, such as Go's, would take for a known member."""
    folded = _casefolded(known)
    for name in members.keys() - known:
        if name.casefold() in folded:
            raise InvalidJson(INVALID_REQUEST, "A member's name differs from a known one only in case.")


@cache
def _casefolded(known: frozenset[str]) -> frozenset[str]:
    return frozenset(name.casefold() for name in known)


MAX_CHARS: Final = 8192
"""Maximum length of names, URIs and tokens, which are stored or used as keys."""
MAX_URIS: Final = 256
"""Maximum resource subscriptions of one request; a session of the handshake era has the same maximum."""
LOG_LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


def check_params(method: str, params: Json) -> None:
    """Raise `Fault(INVALID_INPUT)` if a parameter that the gateway reads is missing, too long or of a wrong type."""
    meta = params.get("_meta")
    if meta is not None and not isinstance(meta, dict):
        raise _type_fault("_meta", "an object")
    if meta is not None:
        token = cast("Json", meta).get("progressToken")
        if token is not None:
            _check_token(token)
    for key, kind, type_name, required, max_length in _RULES.get(method, ()):
        value = params.get(key)
        if value is None and not required:
            continue
        if not isinstance(value, kind) or (kind is str and not value):
            raise _type_fault(key, type_name)
        if max_length and len(value) > max_length:  # type: ignore[arg-type]
            raise _length_fault(key)
    if (check_nested := _NESTED_CHECKS.get(method)) is not None:
        check_nested(params)
    if "inputResponses" in params:
        _check_values(params["inputResponses"], dict, "inputResponses", "an object of objects")


def check_log_level(level: Any) -> str:
    if level not in LOG_LEVELS:
        raise Fault(Kind.INVALID_INPUT, f"level must be one of {', '.join(LOG_LEVELS)}.")
    return str(level)


def is_level_enabled(level: Any, min_level: str) -> bool:
    """Return whether `level` is a log level and at least as severe as `min_level`."""
    return level in LOG_LEVELS and LOG_LEVELS.index(level) >= LOG_LEVELS.index(min_level)


def _check_token(token: Any) -> None:
    if isinstance(token, bool) or not isinstance(token, str | int):
        raise _type_fault("_meta.progressToken", "a string or an integer")
    if isinstance(token, str) and len(token) > MAX_CHARS:
        raise _length_fault("_meta.progressToken")


def _check_prompt(params: Json) -> None:
    _check_values(params.get("arguments"), str, "arguments", "an object of strings")


def _check_uris(params: Json) -> None:
    uris: Any = cast("Json", params["notifications"]).get("resourceSubscriptions")
    if uris is None:
        return
    path = "notifications.resourceSubscriptions"
    if not isinstance(uris, list) or not all(isinstance(uri, str) for uri in cast("list[Any]", uris)):
        raise _type_fault(path, "a list of strings")
    requested = cast("list[str]", uris)
    if len(requested) > MAX_URIS:
        raise _fault(path, f"has {len(requested)} URIs, at most {MAX_URIS} are allowed.", "maxItems")
    if any(len(uri) > MAX_CHARS for uri in requested):
        raise _length_fault(path)


def _check_completion(params: Json) -> None:
    for key, parts in (("ref", ("name", "uri")), ("argument", ("name",))):
        for part in parts:
            value: Any = cast("Json", params[key]).get(part)
            if value is not None and not isinstance(value, str):
                raise _type_fault(f"{key}.{part}", "a string")
            if value is not None and len(value) > MAX_CHARS:
                raise _length_fault(f"{key}.{part}")


def _check_values(values: Any, kind: type, path: str, type_name: str) -> None:
    if values is None:
        return
    if not isinstance(values, dict) or not all(isinstance(value, kind) for value in cast("Json", values).values()):
        raise _type_fault(path, type_name)


def _type_fault(path: str, type_name: str) -> Fault:
    return _fault(path, f"must be {type_name}.", "type")


def _length_fault(path: str) -> Fault:
    return _fault(path, f"is too long: at most {MAX_CHARS} characters are allowed.", "maxLength")


def _fault(path: str, problem: str, rule: str) -> Fault:
    details = {"validation_path": f"params.{path}", "validation_rule": rule}
    return Fault(Kind.INVALID_INPUT, f"params.{path} {problem}", details=details)


_NAME: Final = ("name", str, "a string", True, MAX_CHARS)
_URI: Final = ("uri", str, "a string", True, MAX_CHARS)
_TASK: Final = ("taskId", str, "a string", True, MAX_CHARS)
_ARGUMENTS: Final = ("arguments", dict, "an object", False, 0)
# The backend determines the length of a `requestState`; it is decrypted and not stored.
_INPUT: Final = (("inputResponses", dict, "an object", False, 0), ("requestState", str, "a string", False, 0))
_CURSOR: Final = (("cursor", str, "a string", False, MAX_CHARS),)

_RULES: Final[dict[str, tuple[tuple[str, type, str, bool, int], ...]]] = {
    "tools/call": (_NAME, _ARGUMENTS, *_INPUT),
    "prompts/get": (_NAME, _ARGUMENTS, *_INPUT),
    "resources/read": (_URI, *_INPUT),
    "resources/subscribe": (_URI,),
    "resources/unsubscribe": (_URI,),
    "completion/complete": (("ref", dict, "an object", True, 0), ("argument", dict, "an object", True, 0)),
    "subscriptions/listen": (("notifications", dict, "an object", True, 0),),
    "logging/setLevel": (("level", str, "a string", True, 0),),
    "initialize": (("protocolVersion", str, "a string", True, 0), ("capabilities", dict, "an object", True, 0)),
    "tasks/get": (_TASK,),
    "tasks/update": (_TASK, ("inputResponses", dict, "an object", True, 0)),
    "tasks/cancel": (_TASK,),
    "tasks/result": (_TASK,),
    "tasks/list": _CURSOR,
    "tools/list": _CURSOR,
    "prompts/list": _CURSOR,
    "resources/list": _CURSOR,
    "resources/templates/list": _CURSOR,
}
"""Name, type, type in words, whether it is required, and maximum length (0: unlimited) of each parameter."""

_NESTED_CHECKS: Final = {
    "prompts/get": _check_prompt,
    "subscriptions/listen": _check_uris,
    "completion/complete": _check_completion,
}
