"""How a fault looks to a client: one place, for every method, backend and era.

JSON-RPC answers as bytes.

`Server-Timing`: where a request's time went, for a client that asks with `X-Server-Timing`.
"""

from dataclasses import dataclass
from math import ceil
from time import perf_counter_ns
from typing import Any, Final

from gateway.contract import Call, Json, Manifest, McpHttpRequest, Record, Result
from gateway.error_rendering import RESOURCE_NOT_FOUND, code_of
from gateway.errors import Fault, ForeignError, UnknownName
from gateway.protocol.strict_json import encode
from gateway.telemetry.span import stage_times

_PLAIN: Final = Manifest()

ERROR_META: Final = "gatehouse/error"


@dataclass(frozen=True, slots=True)
class RpcError:
    """A JSON-RPC error object."""

    code: int
    message: str
    data: Any = None
    retry_after: float | None = None

    def as_json(self) -> Json:
        error: Json = {"code": self.code, "message": self.message}
        return error if self.data is None else {**error, "data": self.data}


def dress(exc: Fault | ForeignError, call: Call) -> Json | RpcError:
    """A result with `isError`, or a JSON-RPC error, as the backend's contract wants it."""
    code = code_of(exc, call)
    if isinstance(exc, ForeignError):
        return RpcError(exc.code if code is None else code, exc.message, _foreign_data(exc, call))
    route, stage = call.resolved_route, exc.stage or call.record.stage
    manifest = route.backend.manifest if route else _PLAIN
    origin = route.namespace if route and stage == "dispatch" else "gateway"
    error = exc.as_object(correlation_id=call.id, origin=origin, stage=stage, words=manifest.codes)
    if code is None:
        return _failed_result(error, call, manifest)
    if isinstance(exc, UnknownName):
        return RpcError(code, exc.message, error if exc.uri is None else {**error, "uri": exc.uri})
    return RpcError(code, exc.message, error, exc.retry_after)


def _failed_result(error: Json, call: Call, manifest: Manifest) -> Json:
    result: Json = {"content": [{"type": "text", "text": error["message"]}], "isError": True}
    route = call.resolved_route
    assert route is not None
    if manifest.render_error is not None:
        result["structuredContent"] = manifest.render_error(error, route.name, call.arguments)
    elif "outputSchema" in route.definition:
        # Clients hold errors to the output schema too, and this one was not made with ours in mind.
        result["_meta"] = {ERROR_META: error}
    else:
        result["structuredContent"] = {"ok": False, "error": error}
    return result


def _foreign_data(exc: ForeignError, call: Call) -> Any:
    data: Any = exc.data
    if data is None and exc.code == RESOURCE_NOT_FOUND and call.client.modern and "uri" in call.params:
        return {"uri": call.params["uri"]}
    return data


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


ASKED: Final = "x-server-timing"


def timing(inbound: McpHttpRequest, record: Record | None) -> tuple[Header, ...]:
    """One entry for each stage and one for the whole, in milliseconds; nothing unless asked."""
    if ASKED not in inbound.headers or record is None:
        return ()
    now = perf_counter_ns()
    entries = [f"{stage};dur={ns / 1e6:.3f}" for stage, ns in stage_times(record, now)]
    entries.append(f"total;dur={(now - record.started) / 1e6:.3f}")
    return ((b"server-timing", ", ".join(entries).encode()),)
