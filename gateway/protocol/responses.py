"""Builds the JSON-RPC responses and HTTP headers that clients of both eras get.

`render_error` builds a failure as an `isError` result or a JSON-RPC error;
`gateway.error_rendering.rpc_code_of` decides which.
"""

from dataclasses import dataclass
from math import ceil
from time import perf_counter_ns
from typing import Any, Final

from gateway.contract import Call, Json, Manifest, McpHttpRequest, Record, Result
from gateway.error_rendering import RESOURCE_NOT_FOUND, rpc_code_of
from gateway.errors import Fault, ForeignError, UnknownName
from gateway.protocol.strict_json import encode
from gateway.telemetry.span import stage_times

Header = tuple[bytes, bytes]
Headers = list[Header]

ERROR_META: Final = "gatehouse/error"
"""The `_meta` key of the error object, for tools whose output schema rules out our structured content."""
JSON: Final[Header] = (b"content-type", b"application/json")
NO_STORE: Final[Header] = (b"cache-control", b"no-store")
EVENT_STREAM: Final[tuple[Header, ...]] = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)
TIMING_REQUEST_HEADER: Final = "x-server-timing"
"""A request with this header gets a `Server-Timing` header in its response."""

_DEFAULT_MANIFEST: Final = Manifest()
_ENVELOPE_START: Final = b'{"jsonrpc":"2.0","id":'


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


def render_error(exc: Fault | ForeignError, call: Call) -> Json | RpcError:
    """Return a result with `isError` or a JSON-RPC error, as the manifest of the call's backend requires."""
    code = rpc_code_of(exc, call)
    if isinstance(exc, ForeignError):
        return RpcError(exc.code if code is None else code, exc.message, _foreign_data(exc, call))
    route, stage = call.resolved_route, exc.stage or call.record.stage
    manifest = route.backend.manifest if route else _DEFAULT_MANIFEST
    origin = route.namespace if route and stage == "dispatch" else "gateway"
    error = exc.as_object(correlation_id=call.id, origin=origin, stage=stage, codes=manifest.codes)
    if code is None:
        return _error_result(error, call, manifest)
    if isinstance(exc, UnknownName):
        return RpcError(code, exc.message, error if exc.uri is None else {**error, "uri": exc.uri})
    return RpcError(code, exc.message, error, exc.retry_after)


def _error_result(error: Json, call: Call, manifest: Manifest) -> Json:
    result: Json = {"content": [{"type": "text", "text": error["message"]}], "isError": True}
    route = call.resolved_route
    assert route is not None
    if manifest.render_error is not None:
        result["structuredContent"] = manifest.render_error(error, route.name, call.arguments)
    elif "outputSchema" in route.definition:
        # Clients validate error results against the output schema as well, and our error object does not match it.
        result["_meta"] = {ERROR_META: error}
    else:
        result["structuredContent"] = {"ok": False, "error": error}
    return result


def _foreign_data(exc: ForeignError, call: Call) -> Any:
    data: Any = exc.data
    if data is None and exc.code == RESOURCE_NOT_FOUND and call.client.modern and "uri" in call.params:
        return {"uri": call.params["uri"]}
    return data


def result_bytes(id: str | int | None, result: Result) -> bytes:
    body = result if isinstance(result, bytes) else encode(result)
    return _ENVELOPE_START + encode(id) + b',"result":' + body + b"}"


def error_bytes(id: str | int | None, error: RpcError) -> bytes:
    return _ENVELOPE_START + encode(id) + b',"error":' + encode(error.as_json()) + b"}"


def with_request_id(response: bytes, old_id: str | int | None, new_id: str | int | None) -> bytes:
    """Return an encoded response with another request id."""
    return _ENVELOPE_START + encode(new_id) + response[len(_ENVELOPE_START) + len(encode(old_id)) :]


def notification_bytes(method: str, params: object) -> bytes:
    return encode({"jsonrpc": "2.0", "method": method, "params": params})


def request_bytes(id: str, method: str, params: object) -> bytes:
    return encode({"jsonrpc": "2.0", "id": id, "method": method, "params": params})


def json_headers(correlation_id: str, *extra: Header) -> Headers:
    return [JSON, NO_STORE, (b"x-correlation-id", correlation_id.encode()), *extra]


def stream_headers(correlation_id: str, *extra: Header) -> Headers:
    return [*EVENT_STREAM, (b"x-correlation-id", correlation_id.encode()), *extra]


def retry_after_header(seconds: float | None) -> tuple[Header, ...]:
    return () if seconds is None else ((b"retry-after", b"%d" % max(1, ceil(seconds))),)


def server_timing(request: McpHttpRequest, record: Record | None) -> tuple[Header, ...]:
    """Return a `Server-Timing` header with the milliseconds of each stage and in total, if the client requested it."""
    if TIMING_REQUEST_HEADER not in request.headers or record is None:
        return ()
    now = perf_counter_ns()
    entries = [f"{stage};dur={ns / 1e6:.3f}" for stage, ns in stage_times(record, now)]
    entries.append(f"total;dur={(now - record.started) / 1e6:.3f}")
    return ((b"server-timing", ", ".join(entries).encode()),)
