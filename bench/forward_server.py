"""The baseline of the HTTP hop: a minimal ASGI app that checks a token, renames the tool and forwards the request.

Its HTTP client is minimal too: keep-alive connections on an asyncio protocol with httptools. Without a token
argument it forwards bytes unread, which is less than any gateway can do.
"""

import asyncio
import json
import sys
from hashlib import sha256
from typing import Any, cast

import httptools

from bench.echo_server import Receive, Send, serve

_FORWARDED_HEADERS = (b"mcp-protocol-version", b"mcp-method", b"mcp-name", b"mcp-session-id")


class Connection(asyncio.Protocol):
    """A keep-alive connection to the upstream server, one exchange at a time."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[tuple[int, list[tuple[bytes, bytes]], bytes]] | None = None
        self._headers: list[tuple[bytes, bytes]] = []
        self._body = b""

    def request(self, request: bytes) -> "asyncio.Future[tuple[int, list[tuple[bytes, bytes]], bytes]]":
        assert self._transport is not None
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._answer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value))

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        headers, self._headers = self._headers, []
        body, self._body = self._body, b""
        assert self._answer is not None
        self._answer.set_result((self._parser.get_status_code(), headers, body))


class Forward:
    """Forwards requests without reading their bodies."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._head = b"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1:%d\r\ncontent-type: application/json\r\n" % port
        self._idle: list[Connection] = []

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        body = b""
        more = True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        forwarded, body = self._prepare(scope["headers"], body)
        connection = self._idle.pop() if self._idle else await self._connect()
        request = b"%b%bcontent-length: %d\r\n\r\n%b" % (self._head, forwarded, len(body), body)
        status, headers, answer = await connection.request(request)
        self._idle.append(connection)
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    def _prepare(self, headers: list[tuple[bytes, bytes]], body: bytes) -> tuple[bytes, bytes]:
        return b"".join(b"%b: %b\r\n" % header for header in headers if header[0] in _FORWARDED_HEADERS), body

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        return (await loop.create_connection(Connection, "127.0.0.1", self._port))[1]


class AuthenticatingForward(Forward):
    """The minimum of a gateway: checks the bearer token and maps tool names."""

    def __init__(self, port: int, token: str) -> None:
        super().__init__(port)
        self._known = {sha256(token.encode()).digest()}
        self._tools = {"bench_echo": "echo"}

    def _prepare(self, headers: list[tuple[bytes, bytes]], body: bytes) -> tuple[bytes, bytes]:
        header_map = dict(headers)
        if sha256(header_map[b"authorization"].removeprefix(b"Bearer ")).digest() not in self._known:
            raise PermissionError
        message = json.loads(body)
        if message["method"] == "tools/call":
            name = message["params"]["name"] = self._tools[message["params"]["name"]]
            body = json.dumps(message, separators=(",", ":")).encode()
            if b"mcp-name" in header_map:
                header_map[b"mcp-name"] = name.encode()
        return b"".join(
            [b"%b: %b\r\n" % (each, header_map[each]) for each in _FORWARDED_HEADERS if each in header_map]
        ), body


if __name__ == "__main__":
    upstream_port = int(sys.argv[2])
    serve(
        AuthenticatingForward(upstream_port, sys.argv[3]) if len(sys.argv) > 3 else Forward(upstream_port),
        int(sys.argv[1]),
    )
