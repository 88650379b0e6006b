"""The line protocol of peers: JSON lines with a request id, and a handshake of `bridge.auth` and `bridge.hello`.

The Studio plugin speaks it over HTTP, the Godot add-on over a WebSocket.
"""

import json
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, cast

import msgspec

from gateway.contract import Json
from gateway.errors import Fault, Kind

_AUTH: Final = "bridge.auth"
_HELLO: Final = "bridge.hello"
_VERSION: Final = "1.1"
_CLIENT: Final = "gatehouse"
_HELLO_UNSUPPORTED: Final = frozenset({"NOT_FOUND", "UNIMPLEMENTED"})
_HANDSHAKE_REQUIRED: Final = ("authentication required", "bridge.hello required")


class GoxLines:
    """`gateway.contract.PeerProtocol`. A request is `{operation, payload, correlationId?, idempotencyKey?}`."""

    def parse(self, line: str) -> Json:
        try:
            response = msgspec.json.decode(line, type=_Response)
        except (msgspec.DecodeError, RecursionError) as exc:
            raise Fault(Kind.INVALID_INPUT, "The line is not a valid response.") from exc
        if not response.success and response.error is None:
            raise Fault(Kind.INVALID_INPUT, "A failed response needs an error with code and message.")
        return msgspec.to_builtins(response)

    async def handshake(self, request: Callable[[Json], Awaitable[Json]]) -> Sequence[str]:
        # `encode` adds the token: it must not reach other workers.
        authenticated = await request({"operation": _AUTH, "payload": {"clientName": _CLIENT}})
        if not authenticated["success"]:
            raise Fault(Kind.DENIED, str(authenticated["error"]["message"]))
        response = await request({"operation": _HELLO, "payload": {"protocolVersion": _VERSION, "clientName": _CLIENT}})
        if not response["success"]:
            if response["error"]["code"] in _HELLO_UNSUPPORTED:
                return []  # an old plugin, which has no capabilities
            raise Fault(Kind.DENIED, str(response["error"]["message"]))
        hello: Json = response.get("payload") or {}
        offered = cast("object", hello.get("capabilities") or [])
        if not hello.get("protocolVersion") or not isinstance(offered, list):
            return []
        return [str(each) for each in cast("list[Any]", offered)]

    def lost_handshake(self, response: Json) -> bool:
        error = response.get("error")
        return (
            error is not None and error["code"] == "ACCESS_DENIED" and error["message"].startswith(_HANDSHAKE_REQUIRED)
        )


def encode(message: Json, token: str) -> str:
    """Encode a request as a line. `bridge.auth` gets the peer's own token, which proves that it reached its gateway."""
    request_id, payload = message["requestId"], message["payload"]
    line = {
        "requestId": request_id,
        "correlationId": message.get("correlationId") or request_id,
        "idempotencyKey": message.get("idempotencyKey") or request_id,
        "operation": message["operation"],
        "timestamp": datetime.now(UTC).isoformat().replace("+00:00", "Z"),
        "payload": {"token": token, **payload} if message["operation"] == _AUTH else payload,
    }
    if message.get("principal"):
        line["principal"] = message["principal"]
    # Not as ASCII: an escaped character takes up to six times the bytes.
    return json.dumps(line, separators=(",", ":"), ensure_ascii=False)


class _Error(msgspec.Struct):
    code: str
    message: str
    retryable: bool = False
    details: Any = None


class _Response(msgspec.Struct):
    requestId: str
    success: bool
    payload: Any = None
    error: _Error | None = None
