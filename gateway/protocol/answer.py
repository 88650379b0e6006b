"""JSON-RPC answers as bytes."""

from typing import Final

from gateway.contract import Result
from gateway.protocol.faults import RpcError
from gateway.protocol.json import encode

Header = tuple[bytes, bytes]
Headers = list[Header]

JSON: Final[Header] = (b"content-type", b"application/json")
NO_STORE: Final[Header] = (b"cache-control", b"no-store")
EVENT_STREAM: Final[tuple[Header, ...]] = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)


def result_bytes(id: str | int | None, result: Result) -> bytes:
    body = result if isinstance(result, bytes) else encode(result)
    return b'{"jsonrpc":"2.0","id":' + encode(id) + b',"result":' + body + b"}"


def error_bytes(id: str | int | None, error: RpcError) -> bytes:
    return encode({"jsonrpc": "2.0", "id": id, "error": error.as_json()})


def notification_bytes(method: str, params: object) -> bytes:
    return encode({"jsonrpc": "2.0", "method": method, "params": params})


def request_bytes(id: str, method: str, params: object) -> bytes:
    return encode({"jsonrpc": "2.0", "id": id, "method": method, "params": params})


def headers(correlation_id: str, *more: Header) -> Headers:
    return [JSON, NO_STORE, (b"x-correlation-id", correlation_id.encode()), *more]


def stream_headers(correlation_id: str, *more: Header) -> Headers:
    return [*EVENT_STREAM, (b"x-correlation-id", correlation_id.encode()), *more]


def retry_header(seconds: float | None) -> tuple[Header, ...]:
    return () if seconds is None else ((b"retry-after", b"%d" % max(1, round(seconds))),)
