"""How a fault looks to a client: one place, for every method, backend and era."""

from dataclasses import dataclass
from typing import Any, Final, cast

from gateway.contract import Call, Json, Manifest
from gateway.errors import TABLE, Fault, ForeignError, Kind, UnknownName

_PLAIN: Final = Manifest()
ERROR_META: Final = "gatehouse/error"
RESOURCE_NOT_FOUND: Final = -32002
INVALID_PARAMS: Final = -32602


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
    if isinstance(exc, ForeignError):
        return RpcError(*_in_era(exc, call))
    route, stage = call.leads_to, exc.stage or call.record.stage
    manifest = route.backend.manifest if route else _PLAIN
    origin = route.namespace if route and stage == "dispatch" else "gateway"
    error = exc.as_object(correlation_id=call.id, origin=origin, stage=stage, words=manifest.words)
    if isinstance(exc, UnknownName):
        return _unknown(exc, error, modern=call.client.modern)
    if route is None or call.method != "tools/call" or manifest.faults == "protocol":
        return RpcError(number(exc.kind, modern=call.client.modern), exc.message, error, exc.retry_after)
    return _failed_result(error, call, manifest)


def number(kind: Kind, *, modern: bool) -> int:
    row = TABLE[kind]
    return row.modern if modern else row.handshake


def _failed_result(error: Json, call: Call, manifest: Manifest) -> Json:
    result: Json = {"content": [{"type": "text", "text": error["message"]}], "isError": True}
    route = call.leads_to
    assert route is not None
    if manifest.dress is not None:
        result["structuredContent"] = manifest.dress(error, route.name, call.arguments)
    elif "outputSchema" in route.definition:
        # Clients hold errors to the output schema too, and this one was not made with ours in mind.
        result["_meta"] = {ERROR_META: error}
    else:
        result["structuredContent"] = {"ok": False, "error": error}
    return result


def _unknown(exc: UnknownName, error: Json, *, modern: bool) -> RpcError:
    if exc.uri is None:
        return RpcError(INVALID_PARAMS, exc.message, error)
    code = INVALID_PARAMS if modern else RESOURCE_NOT_FOUND
    return RpcError(code, exc.message, {**error, "uri": exc.uri})


def _in_era(exc: ForeignError, call: Call) -> tuple[int, str, Any]:
    """The two eras number an unknown resource differently."""
    code, data, modern = exc.code, cast("object", exc.data), call.client.modern
    if modern and code == RESOURCE_NOT_FOUND:
        code = INVALID_PARAMS
        if data is None and "uri" in call.params:
            data = {"uri": call.params["uri"]}
    elif not modern and code == INVALID_PARAMS and isinstance(data, dict) and "uri" in data:
        code = RESOURCE_NOT_FOUND
    return code, exc.message, cast("Any", data)
