"""Routes the HTTP requests of an MCP endpoint to the protocol era of the client. `McpEndpoint` calls it."""

import re
from collections.abc import Awaitable
from functools import lru_cache
from typing import Final

from mcp.types.version import HANDSHAKE_PROTOCOL_VERSIONS

from gateway.contract import McpHttpRequest, ResponseWriter
from gateway.protocol.legacy import LegacyEra
from gateway.protocol.modern import ModernEra
from gateway.protocol.responses import Header, RpcError

_HANDSHAKE_VERSIONS: Final = frozenset(HANDSHAKE_PROTOCOL_VERSIONS)
_INVALID_REQUEST: Final = -32600
_CHARSET: Final = re.compile(r"(?:^|;)\s*charset\s*=\s*\"?([^\s;\"]*)").search
_UTF_8: Final = frozenset({"utf-8", "utf8", "us-ascii"})
_ACCEPT_STREAM: Final = "GET opens an event stream. Send Accept: text/event-stream."


class EraRouter:
    """Selects the era by the `MCP-Protocol-Version` header alone."""

    def __init__(self, modern: ModernEra, legacy: LegacyEra) -> None:
        self._modern = modern
        self._legacy = legacy

    def serve(self, request: McpHttpRequest, writer: ResponseWriter) -> Awaitable[None]:
        """Return the coroutine of the era that serves the request. Not a coroutine itself, which saves a frame."""
        headers = request.headers
        version = headers.get("mcp-protocol-version")
        legacy = version is None or version in _HANDSHAKE_VERSIONS
        if request.method == "POST":
            refusal = _check_media_types(headers.get("content-type", ""), headers.get("accept", "*/*"), legacy)
            if refusal is not None:
                return self._refuse(request, writer, legacy, *refusal)
            return self._legacy.post(request, writer) if legacy else self._modern.post(request, writer)
        if request.method == "GET" and legacy:
            if "text/event-stream" not in headers.get("accept", ""):
                return self._refuse(request, writer, legacy, 406, _ACCEPT_STREAM)
            return self._legacy.get(request, writer)
        if request.method == "DELETE" and legacy:
            return self._legacy.delete(request, writer)
        allow = b"GET, POST, DELETE" if legacy else b"POST"
        return self._refuse(request, writer, legacy, 405, "This HTTP method is not allowed here.", (b"allow", allow))

    def _refuse(
        self,
        request: McpHttpRequest,
        writer: ResponseWriter,
        legacy: bool,
        status: int,
        message: str,
        *extra_headers: Header,
    ) -> Awaitable[None]:
        refusals = self._legacy.refusals if legacy else self._modern.refusals
        return refusals.refuse(request, writer, status, RpcError(_INVALID_REQUEST, message), *extra_headers)


@lru_cache(maxsize=256)
def _check_media_types(content_type: str, accept: str, legacy: bool) -> tuple[int, str] | None:
    """Return the status and message of a refusal, if any. Cached, because clients send the same few headers."""
    media_type, _, parameters = content_type.lower().partition(";")
    if media_type.strip() != "application/json":
        return 415, "The content type must be application/json."
    charset = _CHARSET(parameters)
    if charset is not None and charset[1] not in _UTF_8:
        return 415, "The body must be UTF-8."
    if "*/*" in accept:
        return None
    # Clients must accept both. Some clients of the handshake era accept only JSON, which is sufficient to serve them.
    required = ("application/json",) if legacy else ("application/json", "text/event-stream")
    if not all(each in accept for each in required):
        return 406, "Accept both application/json and text/event-stream."
    return None
