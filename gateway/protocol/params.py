"""The parameters of each method, checked by hand: a wrong shape is told apart from a wrong value."""

from typing import Any, Final, cast

from gateway.contract import Json
from gateway.errors import Fault, Kind

LOG_LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


def check(method: str, params: Json) -> None:
    """Raises `Fault(INVALID_INPUT)` when a parameter that the gateway itself reads is missing or of another type."""
    meta = params.get("_meta")
    if meta is not None and not isinstance(meta, dict):
        raise _wrong("_meta", "an object")
    if meta is not None:
        token = cast("Json", meta).get("progressToken")
        if token is not None and (isinstance(token, bool) or not isinstance(token, str | int)):
            raise _wrong("_meta.progressToken", "a string or an integer")
    for key, kind, word, required in _RULES.get(method, ()):
        value = params.get(key)
        if value is None and not required:
            continue
        if not isinstance(value, kind) or (kind is str and not value):
            raise _wrong(key, word)
    if method == "prompts/get":
        _all(params.get("arguments"), str, "arguments", "an object of strings")
    if method == "subscriptions/listen":
        _check_uris(cast("Json", params["notifications"]).get("resourceSubscriptions"))
    if "inputResponses" in params:
        _all(params["inputResponses"], dict, "inputResponses", "an object of objects")


def check_level(level: Any) -> str:
    if level not in LOG_LEVELS:
        raise Fault(Kind.INVALID_INPUT, f"level must be one of {', '.join(LOG_LEVELS)}.")
    return str(level)


def loud_enough(level: Any, lowest: str) -> bool:
    return level in LOG_LEVELS and LOG_LEVELS.index(level) >= LOG_LEVELS.index(lowest)


def _check_uris(uris: Any) -> None:
    if uris is None:
        return
    if not isinstance(uris, list) or not all(isinstance(uri, str) for uri in cast("list[Any]", uris)):
        raise _wrong("notifications.resourceSubscriptions", "a list of strings")


def _all(values: Any, kind: type, path: str, word: str) -> None:
    if values is None:
        return
    if not isinstance(values, dict) or not all(isinstance(value, kind) for value in cast("Json", values).values()):
        raise _wrong(path, word)


def _wrong(path: str, word: str) -> Fault:
    return Fault(
        Kind.INVALID_INPUT,
        f"params.{path} must be {word}.",
        details={"validation_path": f"params.{path}", "validation_rule": "type"},
    )


_NAME: Final = ("name", str, "a string", True)
_URI: Final = ("uri", str, "a string", True)
_ARGUMENTS: Final = ("arguments", dict, "an object", False)
_INPUT: Final = (("inputResponses", dict, "an object", False), ("requestState", str, "a string", False))
_CURSOR: Final = (("cursor", str, "a string", False),)
_RULES: Final[dict[str, tuple[tuple[str, type, str, bool], ...]]] = {
    "tools/call": (_NAME, _ARGUMENTS, *_INPUT),
    "prompts/get": (_NAME, _ARGUMENTS, *_INPUT),
    "resources/read": (_URI, *_INPUT),
    "resources/subscribe": (_URI,),
    "resources/unsubscribe": (_URI,),
    "completion/complete": (("ref", dict, "an object", True), ("argument", dict, "an object", True)),
    "subscriptions/listen": (("notifications", dict, "an object", True),),
    "logging/setLevel": (("level", str, "a string", True),),
    "initialize": (("protocolVersion", str, "a string", True), ("capabilities", dict, "an object", True)),
    "tools/list": _CURSOR,
    "prompts/list": _CURSOR,
    "resources/list": _CURSOR,
    "resources/templates/list": _CURSOR,
}
