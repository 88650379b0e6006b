"""The parameters of each method, checked by hand: a wrong shape is told apart from a wrong value."""

from typing import Any, Final, cast

from gateway.contract import Json
from gateway.errors import Fault, Kind

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
