"""The north door: one URL for both eras."""

from collections.abc import Awaitable
from functools import lru_cache
from typing import Final

from mcp.types.version import HANDSHAKE_PROTOCOL_VERSIONS

from gateway.contract import McpHttpRequest, ResponseWriter
from gateway.protocol.legacy import LegacyEra
from gateway.protocol.modern import ModernEra
from gateway.protocol.responses import Header, RpcError

_HANDSHAKE: Final = frozenset(HANDSHAKE_PROTOCOL_VERSIONS)
_INVALID_REQUEST: Final = -32600
_ACCEPT_STREAM: Final = "GET opens an event stream: accept text/event-stream."


class EraRouter:
    """Sends each request to its era: by the `MCP-Protocol-Version` header, and by nothing else."""

    def __init__(self, modern: ModernEra, legacy: LegacyEra) -> None:
        self._modern = modern
        self._legacy = legacy

    def serve(self, inbound: McpHttpRequest, outlet: ResponseWriter) -> Awaitable[None]:
        """Not a coroutine of its own: it hands on the era's."""
        headers = inbound.headers
        version = headers.get("mcp-protocol-version")
        legacy = version is None or version in _HANDSHAKE
        if inbound.verb == "POST":
            refusal = _judged(headers.get("content-type", ""), headers.get("accept", "*/*"), legacy)
            if refusal is not None:
                return self._refuse(inbound, outlet, legacy, *refusal)
            return self._legacy.post(inbound, outlet) if legacy else self._modern.post(inbound, outlet)
        if inbound.verb == "GET" and legacy:
            if "text/event-stream" not in headers.get("accept", ""):
                return self._refuse(inbound, outlet, legacy, 406, _ACCEPT_STREAM)
            return self._legacy.get(inbound, outlet)
        if inbound.verb == "DELETE" and legacy:
            return self._legacy.delete(inbound, outlet)
        allow = b"GET, POST, DELETE" if legacy else b"POST"
        return self._refuse(inbound, outlet, legacy, 405, "This method is not allowed here.", (b"allow", allow))

    def _refuse(
        self, inbound: McpHttpRequest, outlet: ResponseWriter, legacy: bool, status: int, words: str, *more: Header
    ) -> Awaitable[None]:
        refusals = self._legacy.refusals if legacy else self._modern.refusals
        return refusals.tell(inbound, outlet, status, RpcError(_INVALID_REQUEST, words), *more)


@lru_cache(maxsize=256)
def _judged(content_type: str, accept: str, legacy: bool) -> tuple[int, str] | None:
    """The same few headers come again and again."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind != "application/json":
        return 415, "Send application/json."
    if "*/*" in accept:
        return None
    # Clients must name both; of the handshake era some real ones name only JSON, and can be served so.
    wanted = ("application/json",) if legacy else ("application/json", "text/event-stream")
    if not all(each in accept for each in wanted):
        return 406, "Accept both application/json and text/event-stream."
    return None
