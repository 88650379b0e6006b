"""Turns the HTTP response of an API into a tool result, or into a fault with the API's own body in its details."""

import base64
from collections.abc import Callable, Iterable
from email.message import Message
from email.utils import parsedate_to_datetime
from functools import lru_cache
from time import time
from typing import Any, Final, cast

import msgspec

from gateway.catalogue.schema import InvalidSchema, compile_check
from gateway.contract import Json
from gateway.errors import Fault, Kind
from gateway.stages.guard import REDACTED, clean_json, redact_secrets, strip_hidden
from gateway.upstream.http.connection import UpstreamResponse
from gateway.upstream.openapi.operation import Operation

MAX_ERROR_BYTES: Final = 4 * 1024
"""Maximum size of an error body that is passed on; the rest is cut off."""
MIN_SECRET: Final = 6
"""Shorter credentials are not searched for in responses: they would match by chance."""
_MAX_RETRY_AFTER: Final = 3600.0

_KINDS: Final = {
    400: Kind.INVALID_INPUT,
    401: Kind.UNAVAILABLE,
    402: Kind.DENIED,
    403: Kind.DENIED,
    404: Kind.NOT_FOUND,
    405: Kind.UNSUPPORTED,
    406: Kind.UNSUPPORTED,
    408: Kind.TIMEOUT,
    409: Kind.ILLEGAL_STATE,
    410: Kind.NOT_FOUND,
    412: Kind.ILLEGAL_STATE,
    413: Kind.TOO_LARGE,
    414: Kind.TOO_LARGE,
    415: Kind.UNSUPPORTED,
    422: Kind.INVALID_INPUT,
    423: Kind.ILLEGAL_STATE,
    425: Kind.UNAVAILABLE,
    428: Kind.ILLEGAL_STATE,
    429: Kind.RATE_LIMITED,
    431: Kind.TOO_LARGE,
    451: Kind.DENIED,
    500: Kind.INTERNAL,
    501: Kind.UNSUPPORTED,
    504: Kind.TIMEOUT,
    507: Kind.ILLEGAL_STATE,
}
_decode: Final = msgspec.json.Decoder().decode
_encode: Final = msgspec.json.Encoder().encode


def to_result(
    name: str, operation: Operation, response: UpstreamResponse, secrets: Iterable[str], max_blob: int
) -> Json:
    """The result of a call. Raises the `Fault` of a status that is not a success.

    `secrets` are the credentials of the request: an API that returns them does not reveal them to the caller.
    """
    if response.body is None:
        raise Fault(Kind.UNSUPPORTED, f"{name} responded with an event stream, which is not supported for APIs.")
    media_type, charset = _content_type(response)
    status, raw = response.status, response.body
    if status == 304:
        return _structured(operation, {}, "HTTP 304, not modified.")
    if not 200 <= status < 300:
        raise _status_fault(name, response, _redact_bytes(raw, secrets), media_type, charset)
    if not raw:
        return _structured(operation, {}, f"HTTP {status}, without content.")
    if _is_json(media_type):
        raw = _redact_bytes(raw, secrets)
        try:
            return _structured(operation, _decode(raw), raw.decode(errors="replace"))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return _unstructured(operation, _text_block(raw, charset))
    if media_type.startswith("text/") or media_type.endswith(("+xml", "/xml", "/yaml", "/javascript")):
        return _unstructured(operation, _text_block(_redact_bytes(raw, secrets), charset))
    return _unstructured(operation, _blob_block(name, operation, raw, media_type, max_blob))


def _structured(operation: Operation, value: Any, text: str) -> Json:
    content: Json = cast("Json", value) if isinstance(value, dict) else {"result": value}
    result: Json = {"content": [{"type": "text", "text": text}], "structuredContent": content}
    if operation.output_schema is not None and (problem := _find_mismatch(operation.output_schema, content)):
        return _mismatch(problem, result["content"])
    return {**result, "isError": False, "resultType": "complete"}


def _unstructured(operation: Operation, block: Json) -> Json:
    if operation.output_schema is not None:
        return _mismatch("it is not JSON", [block])
    return {"content": [block], "isError": False, "resultType": "complete"}


def _mismatch(problem: str, content: list[Json]) -> Json:
    """A response that violates the output schema. Clients would reject it, so that the caller would not see it."""
    notice = (
        f"The API executed the request, but its response does not match its document: {problem}. The response follows."
    )
    return {"content": [{"type": "text", "text": notice}, *content], "isError": True, "resultType": "complete"}


def _find_mismatch(schema: Json, content: Json) -> str:
    check = _compiled(_encode(schema))
    if check is None:
        return ""
    try:
        check(content)
    except Fault as fault:
        return "" if fault.kind is Kind.TOO_LARGE else fault.message.rstrip(".")
    return ""


@lru_cache(maxsize=256)
def _compiled(encoded: bytes) -> Callable[[Json], None] | None:
    """The check of an output schema, compiled when it is first needed. None if it cannot be compiled."""
    try:
        return compile_check(_decode(encoded), prefix="response")
    except InvalidSchema:
        return None


def _text_block(raw: bytes, charset: str) -> Json:
    return {"type": "text", "text": _decode_text(raw, charset)}


def _blob_block(name: str, operation: Operation, raw: bytes, media_type: str, max_blob: int) -> Json:
    if len(raw) > max_blob:
        raise Fault(
            Kind.TOO_LARGE,
            f"{name} responded with a file that is over the limit.",
            details={"payload_bytes": len(raw), "max_bytes": max_blob},
        )
    blob = base64.b64encode(raw).decode()
    resource = {"uri": f"openapi://{operation.name}", "mimeType": media_type or "application/octet-stream"}
    return {"type": "resource", "resource": {**resource, "blob": blob}}


# ---- errors ----


def _status_fault(name: str, response: UpstreamResponse, raw: bytes, media_type: str, charset: str) -> Fault:
    status = response.status
    details: Json = {"status": status}
    if (body := _error_body(raw, media_type, charset)) not in (None, ""):
        details["body"] = body
    if status == 401:
        message = f"{name} rejected the gateway's credential (HTTP 401)."
        return Fault(Kind.UNAVAILABLE, message, details=details, retryable=False)
    if 300 <= status < 400:
        message = f"{name} responded with a redirect (HTTP {status}), which is not followed."
        return Fault(Kind.UNSUPPORTED, message, details=details)
    kind = _KINDS.get(status) or (Kind.UNAVAILABLE if status >= 500 else Kind.INVALID_INPUT)
    wait = _retry_after(response.headers.get("retry-after", "")) if status in (429, 503) else None
    if kind is Kind.RATE_LIMITED and wait is None:
        wait = 1.0
    return Fault(kind, f"{name} responded with HTTP {status}.", details=details, retry_after=wait)


def _error_body(raw: bytes, media_type: str, charset: str) -> Any:
    """The body of an error: JSON if it is within the limit, else its beginning as text; cleaned."""
    if _is_json(media_type) and len(raw) <= MAX_ERROR_BYTES:
        try:
            return clean_json(_decode(raw), _clean)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass
    if not _is_json(media_type) and not media_type.startswith("text/") and media_type:
        return f"{len(raw)} bytes of {media_type[:80]}" if raw else None
    # Cleaned before it is cut: a cut secret would not be recognized.
    text = _clean(_decode_text(raw[: 16 * MAX_ERROR_BYTES], charset))
    return text if len(text) <= MAX_ERROR_BYTES else f"{text[:MAX_ERROR_BYTES]}…"


def _clean(text: str) -> str:
    return redact_secrets(strip_hidden(text))


def _redact_bytes(raw: bytes, secrets: Iterable[str]) -> bytes:
    for secret in secrets:
        for form in {secret, _encode(secret)[1:-1].decode()}:
            if len(form) >= MIN_SECRET and (encoded := form.encode()) in raw:
                raw = raw.replace(encoded, REDACTED.encode())
    return raw


def _retry_after(text: str) -> float | None:
    """Seconds until the time or after the delay of a Retry-After header."""
    if text.isascii() and text.isdigit():
        return min(float(text[:9]), _MAX_RETRY_AFTER)
    try:
        return min(max(parsedate_to_datetime(text).timestamp() - time(), 0.0), _MAX_RETRY_AFTER)
    except (ValueError, OverflowError):
        return None


# ---- media types ----


def _content_type(response: UpstreamResponse) -> tuple[str, str]:
    """The media type in lower case, and the charset."""
    header = Message()
    header["content-type"] = response.headers.get("content-type", "")[:200] or "application/octet-stream"
    charset = header.get_param("charset")
    return header.get_content_type(), charset if isinstance(charset, str) else "utf-8"


def _is_json(media_type: str) -> bool:
    return media_type == "application/json" or media_type.endswith("+json")


def _decode_text(raw: bytes, charset: str) -> str:
    try:
        return raw.decode(charset, errors="replace")
    except (LookupError, ValueError):
        return raw.decode(errors="replace")
