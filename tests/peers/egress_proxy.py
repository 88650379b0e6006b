"""A real HTTP proxy that opens tunnels (CONNECT). It resolves every name to this machine, as only a proxy could."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class EgressProxy:
    """Records each tunnel as (authority, status). With `login`, it demands these Basic credentials."""

    def __init__(self, login: str | None = None) -> None:
        self.tunnels: list[tuple[str, int]] = []
        self.port = 0
        self._login = login
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @asynccontextmanager
    async def running(self) -> AsyncIterator["EgressProxy"]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        verb, authority, _ = head.split("\r\n")[0].split(" ")
        assert verb == "CONNECT", head
        host, _, port = authority.rpartition(":")
        if self._login is not None and f"Proxy-Authorization: Basic {self._login}" not in head:
            self.tunnels.append((authority, 407))
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
            writer.close()
            return
        self.tunnels.append((authority, 200))
        assert host
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        for source, sink in ((reader, far_writer), (far_reader, writer)):
            task = asyncio.create_task(_copy(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError, asyncio.CancelledError):
        while chunk := await source.read(65536):
            sink.write(chunk)
            await sink.drain()
    sink.close()
