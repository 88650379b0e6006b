"""The shape of JSON-RPC messages, as MCP narrows it.

A member that another parser could take for one of ours, because only its case differs, is refused.

The parameters of each method, checked by hand: a wrong shape is told apart from a wrong value.
"""

from functools import cache
from typing import Any, Final, Literal, TypeGuard, cast

from msgspec import Struct

from gateway.contract import Json
from gateway.errors import Fault, Kind
from gateway.protocol.strict_json import INVALID_REQUEST, InvalidJson

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
            raise InvalidJson(INVALID_REQUEST, "id must be a string of at most 256 characters or a 64-bit integer.")
        if body.get("jsonrpc") != "2.0":
            raise InvalidJson(INVALID_REQUEST, 'jsonrpc must be "2.0".')
        if not body.keys() <= ENVELOPE:
            _refuse_shadows(body, ENVELOPE)
        return _asked(body) if "method" in body else _answered(body)
    except InvalidJson as refusal:
        refusal.id = id if known_id else None
        raise


def _asked(body: Json) -> Message:
    method = body["method"]
    if type(method) is not str:
        raise InvalidJson(INVALID_REQUEST, "method must be a string.")
    if "result" in body or "error" in body:
        raise InvalidJson(INVALID_REQUEST, "A message has either a method or an answer.")
    params: Any = body.get("params", {})
    if not isinstance(params, dict):
        raise InvalidJson(INVALID_REQUEST, "params must be an object.")
    members = cast("Json", params)
    if not members.keys() <= PARAMS:
        _refuse_shadows(members, PARAMS)
    if "id" in body:
        return Message("request", body["id"], method, members)
    return Message("notification", None, method, members)


def _answered(body: Json) -> Message:
    if "id" not in body:
        raise InvalidJson(INVALID_REQUEST, "A message needs a method, or an id with a result or error.")
    if ("result" in body) == ("error" in body):
        raise InvalidJson(INVALID_REQUEST, "A response has exactly one of result and error.")
    if "params" in body:
        raise InvalidJson(INVALID_REQUEST, "A response has no params.")
    if "error" in body:
        return Message("response", body["id"], error=_error(body["error"]))
    if not isinstance(body["result"], dict):
        raise InvalidJson(INVALID_REQUEST, "result must be an object.")
    return Message("response", body["id"], result=cast("Json", body["result"]))


def _error(error: Any) -> Json:
    if not isinstance(error, dict):
        raise InvalidJson(INVALID_REQUEST, "error must be an object.")
    members = cast("Json", error)
    if type(members.get("code")) is not int or type(members.get("message")) is not str:
        raise InvalidJson(INVALID_REQUEST, "error needs an integer code and a message.")
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
            raise InvalidJson(INVALID_REQUEST, "A member's name differs from a known one only in case.")


@cache
def _folded(known: frozenset[str]) -> frozenset[str]:
    return frozenset(name.casefold() for name in known)


MAX_CHARS: Final = 8192

"""Of a name, a URI, a token: what may be kept or counted by."""

MAX_URIS: Final = 256

"""As many as a session of the handshake era may have."""

LOG_LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


def check(method: str, params: Json) -> None:
    """Raises `Fault(INVALID_INPUT)` when a parameter that the gateway reads is missing, of another type or too long.

    So nothing that is kept, or counted by, is longer than `MAX_CHARS`.
    """
    meta = params.get("_meta")
    if meta is not None and not isinstance(meta, dict):
        raise _wrong("_meta", "an object")
    if meta is not None:
        token = cast("Json", meta).get("progressToken")
        if token is not None:
            _check_token(token)
    for key, kind, word, required, most in _RULES.get(method, ()):
        value = params.get(key)
        if value is None and not required:
            continue
        if not isinstance(value, kind) or (kind is str and not value):
            raise _wrong(key, word)
        if most and len(value) > most:  # type: ignore[arg-type]
            raise _long(key)
    if (inside := _INSIDE.get(method)) is not None:
        inside(params)
    if "inputResponses" in params:
        _all(params["inputResponses"], dict, "inputResponses", "an object of objects")


def check_level(level: Any) -> str:
    if level not in LOG_LEVELS:
        raise Fault(Kind.INVALID_INPUT, f"level must be one of {', '.join(LOG_LEVELS)}.")
    return str(level)


def loud_enough(level: Any, lowest: str) -> bool:
    return level in LOG_LEVELS and LOG_LEVELS.index(level) >= LOG_LEVELS.index(lowest)


def _check_token(token: Any) -> None:
    if isinstance(token, bool) or not isinstance(token, str | int):
        raise _wrong("_meta.progressToken", "a string or an integer")
    if isinstance(token, str) and len(token) > MAX_CHARS:
        raise _long("_meta.progressToken")


def _check_prompt(params: Json) -> None:
    _all(params.get("arguments"), str, "arguments", "an object of strings")


def _check_uris(params: Json) -> None:
    uris: Any = cast("Json", params["notifications"]).get("resourceSubscriptions")
    if uris is None:
        return
    path = "notifications.resourceSubscriptions"
    if not isinstance(uris, list) or not all(isinstance(uri, str) for uri in cast("list[Any]", uris)):
        raise _wrong(path, "a list of strings")
    wanted = cast("list[str]", uris)
    if len(wanted) > MAX_URIS:
        raise _fault(path, f"has {len(wanted)} URIs, at most {MAX_URIS} are allowed.", "maxItems")
    if any(len(uri) > MAX_CHARS for uri in wanted):
        raise _long(path)


def _check_completion(params: Json) -> None:
    for key, parts in (("ref", ("name", "uri")), ("argument", ("name",))):
        for part in parts:
            value: Any = cast("Json", params[key]).get(part)
            if value is not None and not isinstance(value, str):
                raise _wrong(f"{key}.{part}", "a string")
            if value is not None and len(value) > MAX_CHARS:
                raise _long(f"{key}.{part}")


def _all(values: Any, kind: type, path: str, word: str) -> None:
    if values is None:
        return
    if not isinstance(values, dict) or not all(isinstance(value, kind) for value in cast("Json", values).values()):
        raise _wrong(path, word)


def _wrong(path: str, word: str) -> Fault:
    return _fault(path, f"must be {word}.", "type")


def _long(path: str) -> Fault:
    return _fault(path, f"is too long: at most {MAX_CHARS} characters are allowed.", "maxLength")


def _fault(path: str, what: str, rule: str) -> Fault:
    details = {"validation_path": f"params.{path}", "validation_rule": rule}
    return Fault(Kind.INVALID_INPUT, f"params.{path} {what}", details=details)


_NAME: Final = ("name", str, "a string", True, MAX_CHARS)

_URI: Final = ("uri", str, "a string", True, MAX_CHARS)

_ARGUMENTS: Final = ("arguments", dict, "an object", False, 0)
# A `requestState` is as long as a backend made it; it is opened, and not kept.
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
    "tools/list": _CURSOR,
    "prompts/list": _CURSOR,
    "resources/list": _CURSOR,
    "resources/templates/list": _CURSOR,
}

"""Parameter, type, the type in words, whether it must be there, and how long it may be (0: as long as it likes)."""

_INSIDE: Final = {
    "prompts/get": _check_prompt,
    "subscriptions/listen": _check_uris,
    "completion/complete": _check_completion,
}
