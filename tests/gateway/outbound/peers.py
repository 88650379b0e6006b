"""Peers of the guarded client in tests: a fake resolver, a network that records connections, and a real server."""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import httpcore

PUBLIC = "93.184.215.14"


LOOPBACK = frozenset({"127.0.0.1"})


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class FakeResolver:
    """A resolver that returns its answers in turn, and then repeats the last one."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = list(answers)
        self.lookups: list[tuple[str, int]] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.lookups.append((host, port))
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


class RecordingNetwork(httpcore.AsyncMockBackend):
    """Records the addresses that it connects to. Connections to those in `unreachable` fail."""

    def __init__(self, answer: bytes = OK, unreachable: Iterable[str] = ()) -> None:
        super().__init__([answer])
        self.unreachable = frozenset(unreachable)
        self.connected: list[tuple[str, int]] = []
        self.seconds: list[float | None] = []

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        self.connected.append((host, port))
        self.seconds.append(timeout)
        if host in self.unreachable:
            raise httpcore.ConnectError
        return await super().connect_tcp(host, port)


Reply = Callable[[asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Peer:
    """A real HTTP server that answers each request with the same bytes and records the requests."""

    reply: bytes | Reply = OK
    port: int = 0
    request_heads: list[bytes] = field(default_factory=list[bytes])
    connections: int = 0
    disconnected: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                self.request_heads.append(await reader.readuntil(b"\r\n\r\n"))
                await self._answer(writer)
        writer.close()
        self.disconnected.set()

    async def _answer(self, writer: asyncio.StreamWriter) -> None:
        if isinstance(self.reply, bytes):
            writer.write(self.reply)
            await writer.drain()
        else:
            await self.reply(writer)


@asynccontextmanager
async def peer(reply: bytes | Reply = OK, tls: ssl.SSLContext | None = None) -> AsyncGenerator[Peer]:
    server_peer = Peer(reply)
    server = await asyncio.start_server(server_peer.serve, "127.0.0.1", 0, ssl=tls)
    server_peer.port = server.sockets[0].getsockname()[1]
    try:
        yield server_peer
    finally:
        server.close()
