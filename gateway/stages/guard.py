"""What a backend answers is bounded and cleaned: too large or of a forbidden kind is refused, never cut."""

import json
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any, Final, cast

import msgspec

from gateway.contract import Call, Handler, Json, Manifest, Result
from gateway.errors import Fault, Kind
from gateway.text_cleaning import cleaned, may_hide, without_hidden, without_secrets

_encode: Final = msgspec.json.Encoder().encode
_MODULES: Final = frozenset({"text"})
_REMOTE: Final[frozenset[str]] = frozenset()


class Guard:
    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes

    async def __call__(self, call: Call, call_next: Handler) -> Result:
        result = await call_next(call)
        try:
            encoded = _encode(result)
            size = len(encoded)
        except UnicodeEncodeError:
            # Half a surrogate pair, which the door will replace as it encodes; escaped it is no shorter.
            encoded = json.dumps(result, default=str).encode()
            size = len(encoded)
        except TypeError as exc:
            raise Fault(Kind.INTERNAL, "The backend's answer is not JSON.", stage="guard") from exc
        call.record.notes["result_bytes"] = size
        route = call.resolved_route
        if route is None or isinstance(result, bytes):
            return self._bounded(result, size, self._max_bytes)
        manifest = route.backend.manifest
        most = self._max_bytes
        if manifest.result_bytes:
            most = min(most, manifest.result_bytes.get(route.name) or manifest.result_bytes.get("*") or most)
        self._bounded(result, size, most)
        if manifest.media_types is not None:
            _check_media(result, manifest)
        clean = manifest.clean
        if clean is None:
            clean = _MODULES if route.backend.trusted else _REMOTE
        if "text" in clean and may_hide(encoded):
            result = cleaned(result, without_hidden)
        if "secrets" in clean:
            result = cleaned(result, without_secrets)
        return result

    def _bounded(self, result: Result, size: int, most: int) -> Result:
        if size > most:
            raise Fault(
                Kind.TOO_LARGE,
                "The backend's answer exceeds the limit for one result.",
                details={"payload_bytes": size, "max_bytes": most},
                suggested_fix="Ask for less at a time.",
                stage="guard",
            )
        return result


def _check_media(result: Json, manifest: Manifest) -> None:
    allowed = manifest.media_types or ()
    for kind in _media(result):
        bare = kind.partition(";")[0].strip().lower()
        if not bare.startswith("text/") and not any(fnmatchcase(bare, each) for each in allowed):
            raise Fault(
                Kind.DENIED,
                "The backend's answer holds a kind of content that is not let through here.",
                details={"media_type": bare[:100]},
                stage="guard",
            )


def _media(result: Json) -> Iterator[str]:
    for item in _items(result):
        inner = item.get("resource")
        for each in (item, inner):
            if isinstance(each, dict):
                given = cast("Json", each)
                if isinstance(given.get("mimeType"), str):
                    yield given["mimeType"]
                elif "data" in given or "blob" in given:
                    yield "application/octet-stream"


def _items(result: Json) -> Iterator[Json]:
    for name in ("content", "contents"):
        held: Any = result.get(name)
        for item in cast("list[Any]", held) if isinstance(held, list) else []:
            if isinstance(item, dict):
                yield cast("Json", item)
