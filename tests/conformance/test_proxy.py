"""The authorizing proxy between two raw sockets."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

from tests.conformance.proxy import authorizing_proxy, with_authorization
from tests.conformance.target import free_port

Upstream = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def _connect_through_proxy(
    upstream: Upstream,
) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Open a connection to a proxy in front of the server `upstream`."""
    port = free_port()
    server = await asyncio.start_server(upstream, "127.0.0.1", 0)
    async with server, authorizing_proxy(port, server.sockets[0].getsockname()[1], "Bearer secret"):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        yield reader, writer
        writer.close()


def test_only_the_authorization_and_connection_headers_change() -> None:
    head = b"POST /mcp HTTP/1.1\r\nHost: evil.example\r\nMcp-Name:   padded  \r\nConnection: keep-alive\r\n\r\n"

    assert with_authorization(head, "Bearer secret") == (
        b"POST /mcp HTTP/1.1\r\nHost: evil.example\r\nMcp-Name:   padded  \r\n"
        b"Authorization: Bearer secret\r\nConnection: close\r\n\r\n"
    )


async def test_request_body_is_forwarded_after_the_head() -> None:
    async def upstream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"got " + await reader.readexactly(4))
        writer.close()

    async with asyncio.timeout(5), _connect_through_proxy(upstream) as (reader, writer):
        writer.write(b"POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody")
        assert await reader.read() == b"got body"


async def test_events_are_forwarded_without_buffering() -> None:
    first_event_received = asyncio.Event()

    async def upstream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"data: 1\n\n")
        await first_event_received.wait()
        writer.write(b"data: 2\n\n")
        writer.close()

    async with asyncio.timeout(5), _connect_through_proxy(upstream) as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert await reader.readuntil(b"\n\n") == b"data: 1\n\n"
        first_event_received.set()
        assert await reader.read() == b"data: 2\n\n"


async def test_client_disconnect_closes_the_upstream_connection() -> None:
    disconnected = asyncio.Event()

    async def upstream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"data: 1\n\n")
        assert await reader.read() == b""
        disconnected.set()
        writer.close()

    async with asyncio.timeout(5), _connect_through_proxy(upstream) as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await reader.readuntil(b"\n\n")
        writer.close()
        await disconnected.wait()
