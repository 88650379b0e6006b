"""What a tenant asked to see of its calls, without what no trace should hold."""

import re
from typing import Any, Final, cast

import msgspec

from gateway.telemetry.log import clean

MAX_TEXT: Final = 4096
_MAX_DEPTH: Final = 32
HIDDEN: Final = "[redacted]"
_SECRET_KEY: Final = re.compile(
    r"pass(word|wd|phrase)?|secret|token|credential|authori[sz]ation|api[-_]?key|private[-_]?key|cookie|session[-_]?id",
    re.IGNORECASE,
)


def redacted(value: Any, depth: int = 0) -> Any:
    """The same value, with what stands under a telling key hidden, and credentials cut from texts."""
    if depth > _MAX_DEPTH:
        return HIDDEN
    if isinstance(value, dict):
        known = cast("dict[str, Any]", value)
        return {key: HIDDEN if _SECRET_KEY.search(key) else redacted(each, depth + 1) for key, each in known.items()}
    if isinstance(value, list):
        return [redacted(each, depth + 1) for each in cast("list[Any]", value)]
    return clean(value, MAX_TEXT) if isinstance(value, str) else value


def as_text(value: Any) -> str:
    """JSON of it, redacted and bounded."""
    shown = redacted(value)
    if isinstance(shown, str):
        return shown
    try:
        return msgspec.json.encode(shown).decode()[:MAX_TEXT]
    except (TypeError, UnicodeEncodeError):
        return HIDDEN
