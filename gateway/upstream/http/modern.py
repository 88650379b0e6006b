"""2026-07-28 over HTTP: one POST a request, nothing to remember."""

import itertools
from functools import lru_cache
from typing import Final

import msgspec
from mcp.shared.inbound import NAME_BEARING_METHODS, encode_header_value, mcp_param_headers, x_mcp_header_map

from gateway.contract import MODERN, Json
from gateway.errors import Fault, Kind
from gateway.upstream.conversation import MessageHandler
from gateway.upstream.http.request import fields
from gateway.upstream.http.responses import read_answer, whole_answer
from gateway.upstream.http.target import HttpTarget

_encode: Final = msgspec.json.Encoder().encode
_KEPT_CHARS: Final = 256
"""Of a name: there are as many longer ones as clients can think of."""


class ModernHttp:
    """One server, asked in the newest revision."""

    def __init__(self, name: str, site: HttpTarget, max_bytes: int) -> None:
        self._name = name
        self._site = site
        self._max_bytes = max_bytes
        self._ids = itertools.count(1)

    async def request(
        self, method: str, params: Json, talk: MessageHandler, more: bytes = b"", header_schema: Json | None = None
    ) -> Json:
        """The result. `params` carry the envelope; `more` are lines of headers such as the correlation id."""
        id = next(self._ids)
        talk.sent(id, MODERN, None)
        body = _encode({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
        key = NAME_BEARING_METHODS.get(method)
        name = "" if key is None else str(params.get(key))
        lines = (_routing if len(name) <= _KEPT_CHARS else _lines)(method, name) + more
        if header_schema is not None:
            mirrored = mcp_param_headers(x_mcp_header_map(header_schema), params.get("arguments") or {})
            lines += fields(mirrored.items())
        leased = await self._site.post(lines, body, safe=method != "tools/call")
        try:
            if leased.response.body is not None:
                return whole_answer(self._name, leased.response, id)
            return await read_answer(self._name, leased.response, id, talk, _no_reply, self._max_bytes)
        finally:
            leased.release()


def _lines(method: str, name: str) -> bytes:
    """The headers by which a request is routed."""
    lines = [("mcp-protocol-version", MODERN), ("mcp-method", method)]
    if name:
        lines.append(("mcp-name", encode_header_value(name)))
    return fields(lines)


_routing: Final = lru_cache(4096)(_lines)
"""They are the same for every call of a tool."""


async def _no_reply(answer: Json) -> None:
    raise Fault(Kind.UNAVAILABLE, "The server sent a request, which its revision forbids.")
