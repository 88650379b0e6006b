"""JSON-RPC answers as bytes."""

from math import ceil
from typing import Final

from gateway.contract import Result
from gateway.protocol.faults import RpcError
from gateway.protocol.json import encode

Header = tuple[bytes, bytes]
Headers = list[Header]

_HEAD: Final = b'{"jsonrpc":"2.0","id":'
JSON: Final[Header] = (b"content-type", b"application/json")
NO_STORE: Final[Header] = (b"cache-control", b"no-store")
EVENT_STREAM: Final[tuple[Header, ...]] = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)


def result_bytes(id: str | int | None, result: Result) -> bytes:
    body = result if isinstance(result, bytes) else encode(result)
    return _HEAD + encode(id) + b',"result":' + body + b"}"


def error_bytes(id: str | int | None, error: RpcError) -> bytes:
    return _HEAD + encode(id) + b',"error":' + encode(error.as_json()) + b"}"


def readdressed(answer: bytes, id: str | int | None, to: str | int | None) -> bytes:
    """The same answer to another request."""
    return _HEAD + encode(to) + answer[len(_HEAD) + len(encode(id)) :]


def notification_bytes(method: str, params: object) -> bytes:
    return encode({"jsonrpc": "2.0", "method": method, "params": params})


def request_bytes(id: str, method: str, params: object) -> bytes:
    return encode({"jsonrpc": "2.0", "id": id, "method": method, "params": params})


def headers(correlation_id: str, *more: Header) -> Headers:
    return [JSON, NO_STORE, (b"x-correlation-id", correlation_id.encode()), *more]


def stream_headers(correlation_id: str, *more: Header) -> Headers:
    return [*EVENT_STREAM, (b"x-correlation-id", correlation_id.encode()), *more]


def retry_header(seconds: float | None) -> tuple[Header, ...]:
    return () if seconds is None else ((b"retry-after", b"%d" % max(1, ceil(seconds))),)
