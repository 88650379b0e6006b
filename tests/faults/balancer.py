"""A small load balancer: sends each request to a ready replica, over a new connection."""

import asyncio
import itertools
import time
from contextlib import suppress

MAX_HEAD = 64 * 1024


class Balancer:
    """Listens on a free port. `served` counts the requests of each replica by port, `unanswered` those that failed."""

    def __init__(self, replicas: list[int]) -> None:
        self._replicas = replicas
        self._ready: set[int] = set()
        self._rotation = itertools.count()
        self._in_progress: dict[asyncio.Task[None], int] = {}
        self.served = dict.fromkeys(replicas, 0)
        self.unanswered = dict.fromkeys(replicas, 0)
        self.port = 0

    async def __aenter__(self) -> "Balancer":
        self._server = await asyncio.start_server(self._client, "127.0.0.1", 0, limit=MAX_HEAD)
        self.port = self._server.sockets[0].getsockname()[1]
        self._watching = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._watching.cancel()
        self._server.close()

    def in_progress(self, port: int) -> int:
        """Number of requests that the replica has not completed, including those being connected."""
        return sum(value == port for value in self._in_progress.values())

    async def ready(self, count: int, timeout: float = 90.0) -> None:
        deadline = time.monotonic() + timeout
        while len(self._ready) < count:
            assert time.monotonic() < deadline, f"{len(self._ready)} of {count} replicas are ready after {timeout:g} s"
            await asyncio.sleep(0.02)

    async def _watch(self) -> None:
        while True:
            for port in self._replicas:
                (self._ready.add if await _is_ready(port) else self._ready.discard)(port)
            await asyncio.sleep(0.1)

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            await self._forward(task, reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass  # either side disconnected; the client notices
        finally:
            self._in_progress.pop(task, None)
            writer.close()

    async def _forward(
        self, task: "asyncio.Task[None]", reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        lines = [line for line in head.split(b"\r\n")[1:] if line]
        length = next((int(line[15:]) for line in lines if line.lower().startswith(b"content-length:")), 0)
        body = await reader.readexactly(length)
        forwarded_lines = [line for line in lines if not line.lower().startswith(b"connection:")]
        request = b"\r\n".join([head.split(b"\r\n")[0], *forwarded_lines, b"connection: close", b"", b""]) + body
        port, replica_reader, replica_writer = await self._connect(task)
        self.served[port] += 1
        replica_writer.write(request)
        disconnect = asyncio.create_task(reader.read(1))  # ends when the client disconnects
        responded = False
        try:
            while True:
                next_chunk = asyncio.create_task(replica_reader.read(65536))
                await asyncio.wait((next_chunk, disconnect), return_when=asyncio.FIRST_COMPLETED)
                if disconnect.done() and not next_chunk.done():
                    next_chunk.cancel()
                    responded = True  # or the client no longer waits for it
                    return
                if not (chunk := next_chunk.result()):
                    return
                responded = True
                writer.write(chunk)
                await writer.drain()
        finally:
            self.unanswered[port] += not responded
            disconnect.cancel()
            replica_writer.close()

    async def _connect(self, task: "asyncio.Task[None]") -> tuple[int, asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the first replica that accepts: nothing is sent before, so nothing can be lost."""
        async with asyncio.timeout(10):
            while True:
                for _ in range(len(self._ready)):
                    chosen = sorted(self._ready)[next(self._rotation) % len(self._ready)]
                    self._in_progress[task] = chosen
                    with suppress(OSError):
                        return chosen, *await asyncio.open_connection("127.0.0.1", chosen)
                    del self._in_progress[task]
                    self._ready.discard(chosen)
                await asyncio.sleep(0.02)


async def _is_ready(port: int) -> bool:
    try:
        async with asyncio.timeout(1):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /readyz HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n")
            status = await reader.readline()
            writer.close()
            return b" 200 " in status
    except (OSError, TimeoutError):
        return False
