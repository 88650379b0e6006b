"""An HTTP client that sends exactly the given bytes."""

import asyncio
import json
import socket
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Any

from gateway.edge.connections import ConnectionRegistry


@dataclass(frozen=True)
class RunningServer:
    port: int
    connections: ConnectionRegistry


Serve = Callable[..., RunningServer]
"""`serve(app, limits, send_buffer=None, **uvicorn_options)`."""

HOST = b"Host: 127.0.0.1\r\n"
GET = b"GET / HTTP/1.1\r\n" + HOST + b"\r\n"


def post(body: bytes, *headers: bytes) -> bytes:
    lines = [b"POST / HTTP/1.1", b"Host: 127.0.0.1", b"Content-Length: %d" % len(body), *headers]
    return b"\r\n".join([*lines, b"", body])


@dataclass
class PeerResponse:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> dict[str, Any]:
        return json.loads(self.body)["error"]


class Peer:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, port: int, receive_buffer: int | None = None) -> "Peer":
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        if receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
        return cls(*await asyncio.open_connection(sock=sock))

    async def send_bytes(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def read_response(self) -> PeerResponse:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:-2])}
        body = await self.reader.readexactly(int(headers.get("content-length", "0")))
        return PeerResponse(int(head[0].split()[1]), headers, body)

    async def request(self, data: bytes) -> PeerResponse:
        await self.send_bytes(data)
        return await self.read_response()

    async def drip(self, data: bytes, every: float) -> None:
        """Send one byte at a time until the server closes the connection."""
        try:
            for byte in data:
                await self.send_bytes(bytes([byte]))
                await asyncio.sleep(every)
        except ConnectionError:
            pass

    async def drip_parts(self, part: bytes, times: int) -> None:
        """Send the same part repeatedly until the server closes the connection."""
        try:
            for _ in range(times):
                await self.send_bytes(part)
                await asyncio.sleep(0.01)
        except ConnectionError:
            pass

    async def until_closed(self) -> float:
        """Seconds until the server closes the connection. Reads and discards the data before."""
        started = monotonic()
        try:
            while await self.reader.read(65536):
                pass
        except ConnectionError:
            pass
        return monotonic() - started

    def close(self) -> None:
        self.writer.close()
