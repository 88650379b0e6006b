"""The way to a Studio: which one, what it is asked, and what its refusals mean."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, cast

from backends.gox.action import Request
from gateway.contract import Caller, Host, Json
from gateway.errors import Fault, Kind

_KINDS: Final[Mapping[str, Kind]] = {
    "VALIDATION_ERROR": Kind.INVALID_INPUT,
    "NOT_FOUND": Kind.NOT_FOUND,
    "ACCESS_DENIED": Kind.DENIED,
    "CONFLICT": Kind.ILLEGAL_STATE,
}
_TRANSIENT: Final = "TRANSIENT_ERROR"
_MAX_MESSAGE: Final = 2000


class Studio:
    """The Studios of whoever calls."""

    def __init__(self, home: Host) -> None:
        self._home = home

    def listed(self, caller: Caller) -> list[Json]:
        """Every Studio of the caller's tenant, with how it does."""
        return [_shown(peer, caller) for peer in self._home.bridge.peers(caller)]

    async def ask(self, request: Request, operation: str, payload: Json, timeout: float) -> Json:
        """What the Studio answers. Raises `Fault` for its refusals as for its absence."""
        caller = self._home.current_call().caller
        peer = self._choose(caller, payload.pop("studioId", None))
        message: Json = {
            "operation": operation,
            "payload": payload,
            "correlationId": request.correlation_id,
            "idempotencyKey": request.idempotency_key,
        }
        answer = await self._home.bridge.request(caller, peer, message, timeout)
        if not answer["success"]:
            raise _refusal(answer["error"])
        output = answer.get("payload")
        if not isinstance(output, dict):
            raise Fault(Kind.INTERNAL, "the Studio's answer is not an object", category="platform")
        return cast("Json", output)

    def _choose(self, caller: Caller, wanted: str | None) -> str:
        peers = self._home.bridge.peers(caller)
        if wanted is not None:
            if any(peer["id"] == wanted for peer in peers):
                return wanted
            raise Fault(Kind.NOT_FOUND, f"no Studio {wanted!r} is connected", details={"studioId": wanted})
        if not peers:
            raise Fault(
                Kind.UNAVAILABLE,
                "no Studio is connected",
                retryable=False,
                suggested_fix="Open Studio and connect its Gatehouse plugin, or start a headless one.",
            )
        own = [peer for peer in peers if peer["owner"] == caller.subject]
        if own or len(peers) == 1:
            # The newest that is there; one that is not may come back, and is waited for.
            return max(own or peers, key=lambda peer: (peer["connected"], peer["connected_at"]))["id"]
        raise Fault(
            Kind.INVALID_INPUT,
            "several Studios are connected and none is yours: studioId says which",
            details={"studios": [{"studioId": peer["id"], "name": peer["name"]} for peer in peers]},
        )


def _refusal(error: Json) -> Fault:
    code = str(error["code"])
    details: Any = error.get("details")
    return Fault(
        _KINDS.get(code, Kind.INTERNAL),
        str(error["message"])[:_MAX_MESSAGE],
        details=cast("Json", details) if isinstance(details, dict) else None,
        retryable=code == _TRANSIENT or (code not in _KINDS and error.get("retryable") is True),
        category="runtime",
    )


def _shown(peer: Json, caller: Caller) -> Json:
    shown: Json = {
        "studioId": peer["id"],
        "name": peer["name"],
        "owner": peer["owner"],
        "yours": peer["owner"] == caller.subject,
        "connected": peer["connected"],
        "state": peer["state"],
        "polling": peer["polling"],
        "connectedAt": _time(peer["connected_at"]),
        "lastSeenAt": _time(peer["last_seen"]),
        "capabilities": peer["capabilities"],
        "consecutiveFailures": peer["consecutive_failures"],
    }
    for key, name in (("lastSuccessAt", "last_success_at"), ("lastFailureAt", "last_failure_at")):
        if peer[name] is not None:
            shown[key] = _time(peer[name])
    if peer["last_failure_message"] is not None:
        shown["lastFailureMessage"] = peer["last_failure_message"]
    return shown


def _time(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S.%f}Z"
