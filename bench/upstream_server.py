"""The upstream server of the HTTP hop: a minimal MCP server of one era, fast enough never to be the bottleneck."""

import asyncio
import json
import sys
from typing import Any, cast

import httptools
import uvloop

_TOOL = {
    "name": "echo",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
}
_STATUS = b"HTTP/1.1 %d X\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
_SESSION = b"mcp-session-id: bench\r\n"


class Upstream(asyncio.Protocol):
    """One connection. Responds to each request when its body is complete."""

    def __init__(self, era: str) -> None:
        self._era = era
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._body = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        body, self._body = self._body, b""
        assert self._transport is not None
        if self._parser.get_method() != b"POST":
            self._transport.write(_STATUS % (405, 0) + b"\r\n")
            return
        message = json.loads(body)
        if "id" not in message:
            self._transport.write(_STATUS % (202, 0) + b"\r\n")
            return
        answer = json.dumps(self._answer(message), separators=(",", ":")).encode()
        session = _SESSION if message["method"] == "initialize" else b""
        self._transport.write(_STATUS % (200, len(answer)) + session + b"\r\n" + answer)

    def _answer(self, message: dict[str, Any]) -> dict[str, Any]:
        result = self._result(message["method"], message.get("params") or {})
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
        if result is None:
            return {**reply, "error": {"code": -32601, "message": "Method not found"}}
        return {**reply, "result": {"resultType": "complete", **result} if self._era == "modern" else result}

    def _result(self, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
        if method == "tools/call":
            return {"content": [{"type": "text", "text": params["arguments"]["text"]}], "isError": False}
        if method == "tools/list":
            return {"tools": [_TOOL]}
        offered = {"capabilities": {"tools": {}}}
        if method == "server/discover" and self._era == "modern":
            return {**offered, "supportedVersions": ["2026-07-28"]}
        if method == "initialize" and self._era == "handshake":
            info = {"name": "bench", "version": "1"}
            return {**offered, "protocolVersion": params["protocolVersion"], "serverInfo": info}
        return {} if method == "ping" else None


async def main(era: str, port: int) -> None:
    server = await asyncio.get_running_loop().create_server(lambda: Upstream(era), "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2])))
