"""The floor of the HTTP hop: a bare ASGI app that checks a token, renames the tool, and posts to the server behind it.

Its client is as bare: keep-alive connections on an asyncio protocol and httptools. Without a token to check it does
not even look at what it passes on, which is less than any gateway can do.
"""

import asyncio
import json
import sys
from hashlib import sha256
from typing import Any, cast

import httptools

from bench.echo_server import Receive, Send, serve

_PASSED_ON = (b"mcp-protocol-version", b"mcp-method", b"mcp-name", b"mcp-session-id")


class Connection(asyncio.Protocol):
    """One exchange at a time."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[tuple[int, list[tuple[bytes, bytes]], bytes]] | None = None
        self._headers: list[tuple[bytes, bytes]] = []
        self._body = b""

    def ask(self, request: bytes) -> "asyncio.Future[tuple[int, list[tuple[bytes, bytes]], bytes]]":
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
    """Bytes in, bytes out."""

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
        passed, body = self._prepared(scope["headers"], body)
        connection = self._idle.pop() if self._idle else await self._connect()
        request = b"%b%bcontent-length: %d\r\n\r\n%b" % (self._head, passed, len(body), body)
        status, headers, answer = await connection.ask(request)
        self._idle.append(connection)
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    def _prepared(self, headers: list[tuple[bytes, bytes]], body: bytes) -> tuple[bytes, bytes]:
        return b"".join(b"%b: %b\r\n" % header for header in headers if header[0] in _PASSED_ON), body

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        return (await loop.create_connection(Connection, "127.0.0.1", self._port))[1]


class Gate(Forward):
    """The least that makes it a gateway: a token that must be known, and tools under a name of their own."""

    def __init__(self, port: int, token: str) -> None:
        super().__init__(port)
        self._known = {sha256(token.encode()).digest()}
        self._tools = {"bench_echo": "echo"}

    def _prepared(self, headers: list[tuple[bytes, bytes]], body: bytes) -> tuple[bytes, bytes]:
        named = dict(headers)
        if sha256(named[b"authorization"].removeprefix(b"Bearer ")).digest() not in self._known:
            raise PermissionError
        message = json.loads(body)
        if message["method"] == "tools/call":
            name = message["params"]["name"] = self._tools[message["params"]["name"]]
            body = json.dumps(message, separators=(",", ":")).encode()
            if b"mcp-name" in named:
                named[b"mcp-name"] = name.encode()
        return b"".join([b"%b: %b\r\n" % (each, named[each]) for each in _PASSED_ON if each in named]), body


if __name__ == "__main__":
    behind = int(sys.argv[2])
    serve(Gate(behind, sys.argv[3]) if len(sys.argv) > 3 else Forward(behind), int(sys.argv[1]))
