"""The guard stage: checks the size and media types of a backend's result, and cleans its text. Never truncates."""

import json
import re
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from typing import Any, Final, cast

import msgspec

from gateway.contract import Call, Handler, Json, Manifest, Result
from gateway.errors import Fault, Kind

REDACTED: Final = "[redacted]"
_HIDDEN: Final = re.compile(
    "\x1b\\[[0-?]*[ -/]*[@-~]"  # CSI sequences: colours, cursor movement
    "|\x1b\\][^\x07\x1b]{0,4096}(?:\x07|\x1b\\\\)?"  # OSC sequences: titles, links
    "|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"  # control characters except tab, line feed and carriage return
    "|[\u200b\u2060-\u2064\ufeff]"  # zero-width characters; joiners stay, because scripts and emoji need them
    "|[\u202a-\u202e\u2066-\u206f]"  # bidirectional overrides, which change the reading order
    "|[\U000e0000-\U000e007f\U000e0100-\U000e01ef]"  # tags and variation selectors, which can carry hidden messages
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


def strip_hidden(text: str) -> str:
    return _HIDDEN.sub("", text)


def redact_secrets(text: str) -> str:
    return _SECRETS.sub(REDACTED, text)


def may_contain_hidden(encoded: bytes) -> bool:
    """Whether encoded JSON may contain hidden characters: escaped control characters or non-ASCII bytes."""
    return b"\\u00" in encoded or not encoded.isascii()


def clean_json(value: Any, clean: Callable[[str], str]) -> Any:
    """Apply `clean` to each text value of a JSON value, but not to keys. Unchanged parts are not copied."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        items = cast("list[Any]", value)
        result = [clean_json(item, clean) for item in items]
        return result if any(new is not old for new, old in zip(result, items, strict=True)) else items
    if isinstance(value, dict):
        members = cast("Json", value)
        # Skipped: base64 data and fields that the protocol itself defines.
        result = {key: item if key in _SKIPPED_KEYS else clean_json(item, clean) for key, item in members.items()}
        return result if any(result[key] is not members[key] for key in members) else members
    return value


_SKIPPED_KEYS: Final = frozenset({"data", "blob", "uri", "mimeType", "type", "_meta", "annotations", "inputRequests"})


_encode: Final = msgspec.json.Encoder().encode
_CLEAN_MODULES: Final = frozenset({"text"})

_CLEAN_REMOTE: Final[frozenset[str]] = frozenset()


class Guard:
    """Raises `Fault(TOO_LARGE)` or `Fault(DENIED)` for a result that the limits do not allow."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes

    async def __call__(self, call: Call, call_next: Handler) -> Result:
        result = await call_next(call)
        try:
            encoded = _encode(result)
            size = len(encoded)
        except UnicodeEncodeError:
            # A lone surrogate, replaced when the response is encoded; its escaped form is not shorter.
            encoded = json.dumps(result, default=str).encode()
            size = len(encoded)
        except TypeError as exc:
            raise Fault(Kind.INTERNAL, "The backend's result is not JSON.", stage="guard") from exc
        call.record.notes["result_bytes"] = size
        route = call.resolved_route
        if route is None or isinstance(result, bytes):
            return self._check_size(result, size, self._max_bytes)
        manifest = route.backend.manifest
        max_bytes = self._max_bytes
        if manifest.result_bytes:
            max_bytes = min(
                max_bytes, manifest.result_bytes.get(route.name) or manifest.result_bytes.get("*") or max_bytes
            )
        self._check_size(result, size, max_bytes)
        if manifest.media_types is not None:
            _check_media(result, manifest)
        clean = manifest.clean
        if clean is None:
            clean = _CLEAN_MODULES if route.backend.trusted else _CLEAN_REMOTE
        if "text" in clean and may_contain_hidden(encoded):
            result = clean_json(result, strip_hidden)
        if "secrets" in clean:
            result = clean_json(result, redact_secrets)
        return result

    def _check_size(self, result: Result, size: int, max_bytes: int) -> Result:
        if size > max_bytes:
            raise Fault(
                Kind.TOO_LARGE,
                "The backend's result exceeds the size limit.",
                details={"payload_bytes": size, "max_bytes": max_bytes},
                suggested_fix="Request less data per call.",
                stage="guard",
            )
        return result


def _check_media(result: Json, manifest: Manifest) -> None:
    allowed = manifest.media_types or ()
    for kind in _media_types(result):
        bare = kind.partition(";")[0].strip().lower()
        if not bare.startswith("text/") and not any(fnmatchcase(bare, each) for each in allowed):
            raise Fault(
                Kind.DENIED,
                "The backend's result has a media type that this gateway does not allow.",
                details={"media_type": bare[:100]},
                stage="guard",
            )


def _media_types(result: Json) -> Iterator[str]:
    for item in _content_blocks(result):
        inner = item.get("resource")
        for each in (item, inner):
            if isinstance(each, dict):
                block = cast("Json", each)
                if isinstance(block.get("mimeType"), str):
                    yield block["mimeType"]
                elif "data" in block or "blob" in block:
                    yield "application/octet-stream"


def _content_blocks(result: Json) -> Iterator[Json]:
    for name in ("content", "contents"):
        held: Any = result.get(name)
        for item in cast("list[Any]", held) if isinstance(held, list) else []:
            if isinstance(item, dict):
                yield cast("Json", item)
