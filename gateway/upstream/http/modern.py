"""HTTP client for protocol revision 2026-07-28: one POST per request, no session."""

import itertools
from functools import lru_cache
from typing import Final

import msgspec
from mcp.shared.inbound import NAME_BEARING_METHODS, encode_header_value, mcp_param_headers, x_mcp_header_map

from gateway.contract import MODERN, Json
from gateway.errors import Fault, Kind
from gateway.upstream.conversation import MessageHandler
from gateway.upstream.http.request import encode_headers
from gateway.upstream.http.responses import parse_result, read_result
from gateway.upstream.http.target import HttpTarget

_encode: Final = msgspec.json.Encoder().encode
_NAME_PARAMS: Final = {**NAME_BEARING_METHODS, **dict.fromkeys(("tasks/get", "tasks/update", "tasks/cancel"), "taskId")}
"""The member of the params that is the `Mcp-Name` header."""
_MAX_CACHED_NAME: Final = 256
"""Headers are cached only for names up to this length: clients may send any number of longer ones."""


class ModernHttp:
    """Client of one server in the modern era."""

    def __init__(self, name: str, target: HttpTarget, max_bytes: int) -> None:
        self._name = name
        self._target = target
        self._max_bytes = max_bytes
        self._ids = itertools.count(1)

    async def request(
        self,
        method: str,
        params: Json,
        handler: MessageHandler,
        headers: bytes = b"",
        header_schema: Json | None = None,
        owner: str = "",
    ) -> Json:
        """Send a request and return its result. `params` contain the envelope; `headers` are additional lines.

        `owner` is the principal whose account the request uses.
        """
        id = next(self._ids)
        handler.on_sent(id, MODERN, None)
        body = _encode({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
        key = _NAME_PARAMS.get(method)
        name = "" if key is None else str(params.get(key))
        is_cached = len(name) <= _MAX_CACHED_NAME and key != "taskId"
        routing = (_cached_routing_headers if is_cached else _routing_headers)(method, name)
        headers = routing + headers
        if header_schema is not None:
            mirrored = mcp_param_headers(x_mcp_header_map(header_schema), params.get("arguments") or {})
            headers += encode_headers(mirrored.items())
        leased = await self._target.post(headers, body, idempotent=method != "tools/call", owner=owner)
        try:
            if leased.response.body is not None:
                return parse_result(self._name, leased.response, id)
            return await read_result(self._name, leased.response, id, handler, _reject_request, self._max_bytes)
        finally:
            leased.release()


def _routing_headers(method: str, name: str) -> bytes:
    """Encode the routing headers of a request."""
    headers = [("mcp-protocol-version", MODERN), ("mcp-method", method)]
    if name:
        headers.append(("mcp-name", encode_header_value(name)))
    return encode_headers(headers)


_cached_routing_headers: Final = lru_cache(4096)(_routing_headers)
"""Equal for every call of a tool."""


async def _reject_request(request: Json) -> None:
    raise Fault(Kind.UNAVAILABLE, "The server sent a request, which its protocol revision forbids.")
