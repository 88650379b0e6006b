"""What does not belong in a text that a model or a terminal will read: terminal codes, hidden characters, secrets.

Every pattern takes time linear in the text: no part of one can be matched in two ways.
"""

import re
from collections.abc import Callable
from typing import Any, Final, cast

from gateway.contract import Json

REDACTED: Final = "[redacted]"

_HIDDEN: Final = re.compile(
    "\x1b\\[[0-?]*[ -/]*[@-~]"  # colours, cursor moves
    "|\x1b\\][^\x07\x1b]{0,4096}(?:\x07|\x1b\\\\)?"  # titles, links
    "|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"  # control characters but tab, line feed and carriage return
    "|[\u200b\u2060-\u2064\ufeff]"  # no width; joiners stay, which scripts and emoji need
    "|[\u202a-\u202e\u2066-\u206f]"  # text that reads in another order than it is
    "|[\U000e0000-\U000e007f\U000e0100-\U000e01ef]"  # tags and selectors that carry whole messages
)
_SECRETS: Final = re.compile(
    r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"
    r"|\bgh[pousr]_[A-Za-z0-9]{36,255}"
    r"|\bgithub_pat_[A-Za-z0-9_]{22,255}"
    r"|\bxox[abeoprs]-[A-Za-z0-9-]{10,255}"
    r"|\bsk-[A-Za-z0-9_-]{20,255}"
    r"|\bgth_[a-z0-9]{12}_[A-Za-z0-9_-]{43}_[A-Za-z0-9]{6}"
    r"|\beyJ[A-Za-z0-9_-]{10,4096}\.[A-Za-z0-9_-]{10,4096}\.[A-Za-z0-9_-]{10,1024}"
    r"|-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----[^-]{0,16384}(?:-----END [A-Z ]{0,40}PRIVATE KEY-----)?"
)


def without_hidden(text: str) -> str:
    return _HIDDEN.sub("", text)


def without_secrets(text: str) -> str:
    return _SECRETS.sub(REDACTED, text)


def may_hide(encoded: bytes) -> bool:
    """Whether JSON as we encode it could hold anything hidden: then control characters are escaped, the rest is not."""
    return b"\\u00" in encoded or not encoded.isascii()


def cleaned(value: Any, clean: Callable[[str], str]) -> Any:
    """The same JSON with each text cleaned: values, never keys. What is clean already is not copied."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        items = cast("list[Any]", value)
        made = [cleaned(item, clean) for item in items]
        return made if any(new is not old for new, old in zip(made, items, strict=True)) else items
    if isinstance(value, dict):
        known = cast("Json", value)
        # Bytes in base64 are not text; nor is what the protocol itself says of a thing.
        made = {key: item if key in _NOT_TEXT else cleaned(item, clean) for key, item in known.items()}
        return made if any(made[key] is not known[key] for key in known) else known
    return value


_NOT_TEXT: Final = frozenset({"data", "blob", "uri", "mimeType", "type", "_meta", "annotations", "inputRequests"})
