"""How a fault looks to a client: one place, for every method, backend and era."""

from dataclasses import dataclass
from typing import Any, Final

from gateway.contract import Call, Json, Manifest
from gateway.errors import Fault, ForeignError, UnknownName
from gateway.failure import RESOURCE_NOT_FOUND, code_of, number

_PLAIN: Final = Manifest()
ERROR_META: Final = "gatehouse/error"

__all__ = ["ERROR_META", "RpcError", "dress", "number"]


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
