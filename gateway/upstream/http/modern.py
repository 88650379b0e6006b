"""2026-07-28 over HTTP: one POST a request, nothing to remember."""

import itertools
from collections.abc import Mapping
from typing import Final

import msgspec
from mcp.shared.inbound import NAME_BEARING_METHODS, encode_header_value, mcp_param_headers, x_mcp_header_map

from gateway.contract import MODERN, Json
from gateway.errors import Fault, Kind
from gateway.upstream.http.answers import read_answer
from gateway.upstream.http.site import Site
from gateway.upstream.talk import Talk

_VERSION: Final = ("mcp-protocol-version", MODERN)
_encode: Final = msgspec.json.Encoder().encode


class ModernHttp:
    """One server, asked in the newest revision."""

    def __init__(self, name: str, site: Site, max_bytes: int) -> None:
        self._name = name
        self._site = site
        self._max_bytes = max_bytes
        self._ids = itertools.count(1)

    async def request(
        self, method: str, params: Json, talk: Talk, more: Mapping[str, str], header_schema: Json | None = None
    ) -> Json:
        """The result. `params` carry the envelope; `more` are headers such as the correlation id."""
        id = next(self._ids)
        body = _encode({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
        headers = [_VERSION, ("mcp-method", method), *more.items()]
        if (key := NAME_BEARING_METHODS.get(method)) is not None:
            headers.append(("mcp-name", encode_header_value(str(params.get(key)))))
        if header_schema is not None:
            mirrored = mcp_param_headers(x_mcp_header_map(header_schema), params.get("arguments") or {})
            headers.extend(mirrored.items())
        leased = await self._site.post(headers, body, safe=method != "tools/call")
        try:
            return await read_answer(self._name, leased.response, id, talk, _no_reply, self._max_bytes)
        finally:
            leased.release()


async def _no_reply(answer: Json) -> None:
    raise Fault(Kind.UNAVAILABLE, "The server sent a request, which its revision forbids.")
