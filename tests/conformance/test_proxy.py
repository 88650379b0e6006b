"""The proxy between two raw sockets."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

from tests.conformance.proxy import proxy, with_authorization
from tests.conformance.target import free_port

Far = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def _through(far: Far) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection to a proxy in front of `far`."""
    port = free_port()
    server = await asyncio.start_server(far, "127.0.0.1", 0)
    async with server, proxy(port, server.sockets[0].getsockname()[1], "Bearer secret"):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        yield reader, writer
        writer.close()


def test_only_authorization_and_connection_of_a_request_change() -> None:
    head = b"POST /mcp HTTP/1.1\r\nHost: evil.example\r\nMcp-Name:   padded  \r\nConnection: keep-alive\r\n\r\n"

    assert with_authorization(head, "Bearer secret") == (
        b"POST /mcp HTTP/1.1\r\nHost: evil.example\r\nMcp-Name:   padded  \r\n"
        b"Authorization: Bearer secret\r\nConnection: close\r\n\r\n"
    )


async def test_a_body_follows_its_head() -> None:
    async def far(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"got " + await reader.readexactly(4))
        writer.close()

    async with asyncio.timeout(5), _through(far) as (reader, writer):
        writer.write(b"POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody")
        assert await reader.read() == b"got body"


async def test_an_event_arrives_before_the_next_one_is_written() -> None:
    seen = asyncio.Event()

    async def far(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"data: 1\n\n")
        await seen.wait()
        writer.write(b"data: 2\n\n")
        writer.close()

    async with asyncio.timeout(5), _through(far) as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert await reader.readuntil(b"\n\n") == b"data: 1\n\n"
        seen.set()
        assert await reader.read() == b"data: 2\n\n"


async def test_a_client_that_leaves_takes_its_request_with_it() -> None:
    gone = asyncio.Event()

    async def far(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"data: 1\n\n")
        assert await reader.read() == b""
        gone.set()
        writer.close()

    async with asyncio.timeout(5), _through(far) as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await reader.readuntil(b"\n\n")
        writer.close()
        await gone.wait()
