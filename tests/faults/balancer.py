"""A small balancer: each request to a replica that says it is ready, over a connection of its own."""

import asyncio
import itertools
import time
from contextlib import suppress

MAX_HEAD = 64 * 1024


class Balancer:
    """Listens on a free port. `served[port]` counts what each replica was given, `lost[port]` what got no answer."""

    def __init__(self, replicas: list[int]) -> None:
        self._replicas = replicas
        self._ready: set[int] = set()
        self._turn = itertools.count()
        self._under_way: dict[asyncio.Task[None], int] = {}
        self.served = dict.fromkeys(replicas, 0)
        self.lost = dict.fromkeys(replicas, 0)
        self.port = 0

    async def __aenter__(self) -> "Balancer":
        self._server = await asyncio.start_server(self._client, "127.0.0.1", 0, limit=MAX_HEAD)
        self.port = self._server.sockets[0].getsockname()[1]
        self._watching = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._watching.cancel()
        self._server.close()

    def under_way(self, port: int) -> int:
        """Requests that the replica has not answered to the end, those that are just handed to it among them."""
        return sum(each == port for each in self._under_way.values())

    async def ready(self, count: int, within: float = 90.0) -> None:
        ends = time.monotonic() + within
        while len(self._ready) < count:
            assert time.monotonic() < ends, f"{len(self._ready)} of {count} replicas are ready after {within:g} s"
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
            await self._pass_on(task, reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass  # either side is gone; the client sees it
        finally:
            self._under_way.pop(task, None)
            writer.close()

    async def _pass_on(
        self, task: "asyncio.Task[None]", reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        lines = [line for line in head.split(b"\r\n")[1:] if line]
        length = next((int(line[15:]) for line in lines if line.lower().startswith(b"content-length:")), 0)
        body = await reader.readexactly(length)
        kept = [line for line in lines if not line.lower().startswith(b"connection:")]
        request = b"\r\n".join([head.split(b"\r\n")[0], *kept, b"connection: close", b"", b""]) + body
        port, upstream, down = await self._connected(task)
        self.served[port] += 1
        down.write(request)
        leaving = asyncio.create_task(reader.read(1))  # ends when the client does
        answered = False
        try:
            while True:
                more = asyncio.create_task(upstream.read(65536))
                await asyncio.wait((more, leaving), return_when=asyncio.FIRST_COMPLETED)
                if leaving.done() and not more.done():
                    more.cancel()
                    answered = True  # or nobody waits for it any more
                    return
                if not (chunk := more.result()):
                    return
                answered = True
                writer.write(chunk)
                await writer.drain()
        finally:
            self.lost[port] += not answered
            leaving.cancel()
            down.close()

    async def _connected(self, task: "asyncio.Task[None]") -> tuple[int, asyncio.StreamReader, asyncio.StreamWriter]:
        """To a replica that takes the connection: until one does, nothing was sent and nothing can be lost."""
        async with asyncio.timeout(10):
            while True:
                for _ in range(len(self._ready)):
                    chosen = sorted(self._ready)[next(self._turn) % len(self._ready)]
                    self._under_way[task] = chosen
                    with suppress(OSError):
                        return chosen, *await asyncio.open_connection("127.0.0.1", chosen)
                    del self._under_way[task]
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
