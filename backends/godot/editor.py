"""Connected Godot editors: finds the editor that has a project open and sends requests to it."""

from collections.abc import Sequence
from typing import Any, cast

from backends.godot.paths import Project
from gateway.contract import Caller, Host, Json
from gateway.errors import Fault, Kind

_KINDS = {
    "not_found": Kind.NOT_FOUND,
    "invalid": Kind.INVALID_INPUT,
    "denied": Kind.DENIED,
    "unsupported": Kind.UNSUPPORTED,
    "no_scene": Kind.ILLEGAL_STATE,
}


class Editors:
    """The editors of each tenant. A peer's name is the project path that the editor announced."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def connected(self, caller: Caller) -> Sequence[Json]:
        """Return the connected editors of the caller's tenant."""
        return self._host.peers.list(caller)

    def find(self, caller: Caller, project: Project) -> str | None:
        """Return the peer id of the most recently connected editor that has this project open."""
        peers = [peer for peer in self.connected(caller) if peer.get("name") == str(project.root)]
        return str(max(peers, key=_connected_at)["id"]) if peers else None

    async def request(self, caller: Caller, project: Project | None, method: str, params: Json, timeout: float) -> Json:
        """Call a method of an editor. Raises `Fault(UNAVAILABLE)` when no suitable editor is connected."""
        peer = self.find(caller, project) if project is not None else None
        if project is not None and peer is None:
            raise Fault(Kind.UNAVAILABLE, "No editor has this project open.")
        if not self.connected(caller):
            raise Fault(Kind.UNAVAILABLE, "This call needs an editor, and no editor is connected.")
        payload: Json = {
            "operation": method,
            "payload": params,
            "correlationId": self._host.current_call().correlation_id,
        }
        try:
            answer = await self._host.peers.request(caller, peer, payload, timeout)
        except Fault as fault:
            if fault.kind is not Kind.UNAVAILABLE:
                raise
            raise Fault(Kind.UNAVAILABLE, "The editor's connection was lost.") from fault
        result: Any = answer.get("payload")
        if answer.get("success"):
            return cast("Json", result) if isinstance(result, dict) else {"value": result}
        error: Json = answer.get("error") or {}
        kind = _KINDS.get(str(error.get("code")), Kind.INTERNAL)
        details: Any = error.get("details")
        raise Fault(
            kind, str(error.get("message")), details=cast("Json", details) if isinstance(details, dict) else None
        )


def _connected_at(peer: Json) -> float:
    return float(peer.get("connected_at") or 0)
