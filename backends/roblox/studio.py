"""Sends requests to a Studio over the bridge: selects the Studio and translates its errors into faults."""

import hashlib
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
    "TOO_LARGE": Kind.TOO_LARGE,
    "UNIMPLEMENTED": Kind.UNSUPPORTED,
}
_TRANSIENT: Final = "TRANSIENT_ERROR"
_MAX_MESSAGE: Final = 2000


class StudioClient:
    """Access to the Studios of the caller's tenant."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def list_studios(self, caller: Caller) -> list[Json]:
        """Return every Studio of the caller's tenant with its connection state."""
        return [_describe(peer, caller) for peer in self._host.peers.list(caller)]

    async def send(self, request: Request, operation: str, payload: Json, timeout: float) -> Json:
        """Send one operation and return the Studio's answer.

        Raises `Fault` when the Studio reports an error, does not answer, or is not connected.
        """
        caller = self._host.current_call().caller
        peer = self._select(caller, payload.pop("studioId", None))
        message: Json = {
            "operation": operation,
            "payload": payload,
            "correlationId": request.correlation_id,
            "idempotencyKey": request.idempotency_key,
            "principal": caller.principal,
        }
        answer = await self._host.peers.request(caller, peer, message, timeout)
        if not answer["success"]:
            raise _to_fault(answer["error"])
        output = answer.get("payload")
        if not isinstance(output, dict):
            raise Fault(Kind.INTERNAL, "the Studio's answer is not an object", category="platform")
        return cast("Json", output)

    def _select(self, caller: Caller, studio_id: str | None) -> str:
        peers = self._host.peers.list(caller)
        if studio_id is not None:
            for peer in peers:
                if studio_id in (studio_id_of(peer), peer["id"]):
                    return peer["id"]
            raise Fault(Kind.NOT_FOUND, f"no Studio {studio_id!r} is connected", details={"studioId": studio_id})
        if not peers:
            raise Fault(
                Kind.UNAVAILABLE,
                "no Studio is connected",
                retryable=False,
                suggested_fix="Open Studio and connect its Gatehouse plugin, or start a headless one.",
            )
        # A play test is a context of its Studio, addressed by its own studioId only.
        peers = [peer for peer in peers if _context(peer) == "edit"] or list(peers)
        own = [peer for peer in peers if peer["owner"] == caller.subject]
        if own or len(peers) == 1:
            # Prefer a connected Studio, then the newest; the bridge waits for one that may reconnect.
            return max(own or peers, key=lambda peer: (peer["connected"], peer["connected_at"]))["id"]
        raise Fault(
            Kind.INVALID_INPUT,
            "several Studios are connected and none is yours: set studioId to select one",
            details={"studios": [{"studioId": studio_id_of(peer), "name": peer["name"]} for peer in peers]},
        )


def _to_fault(error: Json) -> Fault:
    code = str(error["code"])
    details: Any = error.get("details")
    return Fault(
        _KINDS.get(code, Kind.INTERNAL),
        str(error["message"])[:_MAX_MESSAGE],
        details=cast("Json", details) if isinstance(details, dict) else None,
        retryable=code == _TRANSIENT or (code not in _KINDS and error.get("retryable") is True),
        category="runtime",
    )


def _context(peer: Json) -> str:
    return peer.get("about", {}).get("context", "edit")


def studio_id_of(peer: Json) -> str:
    """Return the id of a Studio: the same for all its sessions. Derived from the key too, so that no other key can
    claim it. A plugin that sends no id of its own is known by its session."""
    if not peer.get("identity"):
        return peer["id"]
    return hashlib.sha256(f"{peer['credential']}\0{peer['identity']}".encode()).hexdigest()[:16]


def _describe(peer: Json, caller: Caller) -> Json:
    description: Json = {
        "studioId": studio_id_of(peer),
        "name": peer["name"],
        **{key: value for key, value in peer.get("about", {}).items() if value},
        "owner": peer["owner"],
        "yours": peer["owner"] == caller.subject,
        "connected": peer["connected"],
        "state": peer["state"],
        "polling": peer["polling"],
        "connectedAt": _format_time(peer["connected_at"]),
        "lastSeenAt": _format_time(peer["last_seen"]),
        "capabilities": peer["capabilities"],
        "consecutiveFailures": peer["consecutive_failures"],
    }
    for key, name in (("lastSuccessAt", "last_success_at"), ("lastFailureAt", "last_failure_at")):
        if peer[name] is not None:
            description[key] = _format_time(peer[name])
    if peer["last_failure_message"] is not None:
        description["lastFailureMessage"] = peer["last_failure_message"]
    return description


def _format_time(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S.%f}Z"
