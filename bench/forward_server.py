"""The floor of the HTTP hop: a bare ASGI app that posts what it gets to the server behind it, and nothing else.

Its client is as bare: keep-alive connections on an asyncio protocol and httptools.
"""

import asyncio
import sys
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
        passed = b"".join(b"%b: %b\r\n" % header for header in scope["headers"] if header[0] in _PASSED_ON)
        connection = self._idle.pop() if self._idle else await self._connect()
        request = b"%b%bcontent-length: %d\r\n\r\n%b" % (self._head, passed, len(body), body)
        status, headers, answer = await connection.ask(request)
        self._idle.append(connection)
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        return (await loop.create_connection(Connection, "127.0.0.1", self._port))[1]


if __name__ == "__main__":
    serve(Forward(int(sys.argv[2])), int(sys.argv[1]))
