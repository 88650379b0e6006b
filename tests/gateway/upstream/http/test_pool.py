"""The HTTP connection pool, against a misbehaving server."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from gateway.errors import Fault, Kind
from gateway.outbound import parse_target
from gateway.upstream.http.connection import ResponseStream
from gateway.upstream.http.pool import ConnectionPool
from gateway.upstream.http.request import RequestHead

Answer = Callable[[int, asyncio.StreamWriter], Awaitable[bool]]
"""(number of the request, writer) -> whether the connection stays open."""

OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"


class Server:
    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.connections = 0
        self.requests = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while await self._read(reader):
                self.requests += 1
                if not await self._answer(self.requests, writer):
                    break
                await writer.drain()
        finally:
            writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> bool:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return False
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        await reader.readexactly(length)
        return True


@asynccontextmanager
async def pool(answer: Answer, **more: float) -> AsyncIterator[tuple[ConnectionPool, bytes, Server]]:
    state = Server(answer)
    server = await asyncio.start_server(state, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    destination = parse_target(f"http://127.0.0.1:{port}/mcp", allow_private=True)
    limits = {"max_bytes": 1000, **more}
    connections = ConnectionPool("far", destination, **limits)
    try:
        yield connections, RequestHead(destination, {}).post(b"", b"{}"), state
    finally:
        connections.close()
        server.close()


async def keep_alive(number: int, writer: asyncio.StreamWriter) -> bool:
    writer.write(OK)
    return True


async def send(connections: ConnectionPool, request: bytes, idempotent: bool = False) -> bytes | None:
    leased = await connections.exchange(request, idempotent)
    try:
        return leased.response.body
    finally:
        leased.release()


async def test_one_connection_serves_many_requests() -> None:
    async with pool(keep_alive) as (connections, request, server):
        assert [await send(connections, request) for _ in range(5)] == [b"{}"] * 5
        assert (server.connections, server.requests) == (1, 5)


async def test_connection_closed_while_idle_is_replaced() -> None:
    async def close_each(number: int, writer: asyncio.StreamWriter) -> bool:
        writer.write(OK)
        return False

    async with pool(close_each) as (connections, request, server):
        assert [await send(connections, request) for _ in range(3)] == [b"{}"] * 3
        assert server.requests == 3


async def test_request_with_a_partial_response_is_not_retried() -> None:
    async def break_off(number: int, writer: asyncio.StreamWriter) -> bool:
        writer.write(OK if number == 1 else b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{")
        return number == 1

    async with pool(break_off) as (connections, request, server):
        await send(connections, request)
        with pytest.raises(Fault) as error:
            await send(connections, request)
        assert error.value.kind is Kind.UNAVAILABLE
        assert server.requests == 2


async def test_request_on_a_new_connection_closed_without_a_response_is_not_retried() -> None:
    async def close_without_response(number: int, writer: asyncio.StreamWriter) -> bool:
        return False

    async with pool(close_without_response) as (connections, request, server):
        with pytest.raises(Fault):
            await send(connections, request)
        assert server.requests == 1


@pytest.mark.parametrize(("idempotent", "requests"), [(False, 2), (True, 3)])
async def test_request_that_may_have_been_executed_is_retried_only_if_idempotent(
    idempotent: bool, requests: int
) -> None:
    """The server reads the second request on a kept-alive connection and closes it without a response."""

    async def die_on_second(number: int, writer: asyncio.StreamWriter) -> bool:
        if number != 2:
            writer.write(OK)
        return number != 2

    async with pool(die_on_second) as (connections, request, server):
        await send(connections, request)
        if idempotent:
            assert await send(connections, request, idempotent) == b"{}"
        else:
            with pytest.raises(Fault) as error:
                await send(connections, request, idempotent)
            assert error.value.kind is Kind.UNAVAILABLE
        assert server.requests == requests


async def test_redirect_is_not_followed() -> None:
    async def redirect(number: int, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254/\r\ncontent-length: 0\r\n\r\n")
        return True

    async with pool(redirect) as (connections, request, server):
        leased = await connections.exchange(request)
        leased.release()
        assert leased.response.status == 302
        assert server.requests == 1


async def test_idle_connection_is_closed_after_the_idle_timeout() -> None:
    async with pool(keep_alive, idle_seconds=0.05) as (connections, request, server):
        await send(connections, request)
        async with asyncio.timeout(5):
            while connections._idle:
                await asyncio.sleep(0.01)
        await send(connections, request)
        assert server.connections == 2


async def test_second_address_is_tried_when_the_first_refuses() -> None:
    async def both(host: str, port: int) -> list[str]:
        return ["127.0.0.2", "127.0.0.1"]

    server = await asyncio.start_server(Server(keep_alive), "127.0.0.1", 0)
    destination = parse_target(f"http://far.test:{server.sockets[0].getsockname()[1]}/mcp", allow_private=True)
    connections = ConnectionPool("far", destination, max_bytes=1000, resolver=both)
    try:
        assert await send(connections, RequestHead(destination, {}).post(b"", b"{}")) == b"{}"
    finally:
        connections.close()
        server.close()


async def test_threat_13_host_name_with_a_private_address_is_rejected() -> None:
    async def rebinding(host: str, port: int) -> list[str]:
        return ["93.184.216.34", "127.0.0.1"]

    destination = parse_target("https://far.test/mcp")
    connections = ConnectionPool("far", destination, max_bytes=1000, resolver=rebinding)
    with pytest.raises(Fault) as rejected:
        await send(connections, RequestHead(destination, {}).post(b"", b"{}"))
    assert rejected.value.kind is Kind.DENIED


async def test_threat_33_response_over_the_limit_or_compressed_is_rejected() -> None:
    async def large(number: int, writer: asyncio.StreamWriter) -> bool:
        if number == 1:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2000\r\n\r\n" + b"x" * 2000)
        else:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 2\r\n\r\n{}")
        return True

    async with pool(large) as (connections, request, _):
        with pytest.raises(Fault) as rejected:
            await send(connections, request)
        assert rejected.value.kind is Kind.TOO_LARGE
        with pytest.raises(Fault) as rejected:
            await send(connections, request)
        assert rejected.value.kind is Kind.UNAVAILABLE


async def test_stream_is_read_in_chunks_with_backpressure_for_a_slow_reader() -> None:
    chunks = 64

    async def stream(number: int, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        for _ in range(chunks):
            writer.write(b"10000\r\n" + b"x" * 65536 + b"\r\n")
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        return True

    async with pool(stream) as (connections, request, _):
        leased = await connections.exchange(request)
        assert isinstance(leased.response, ResponseStream)
        size = 0
        while chunk := await leased.response.read():
            size += len(chunk)
            assert leased.response._buffered < 2 * 1024 * 1024
        leased.release()
        assert size == chunks * 65536
        assert len(connections._idle) == 1


async def test_cancelled_request_does_not_reuse_its_connection() -> None:
    received = asyncio.Event()

    async def never_first(number: int, writer: asyncio.StreamWriter) -> bool:
        if number == 1:
            received.set()
            await asyncio.Event().wait()
        writer.write(OK)
        return True

    async with pool(never_first) as (connections, request, server):
        task = asyncio.create_task(send(connections, request))
        await asyncio.wait_for(received.wait(), 5)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert await send(connections, request) == b"{}"
        assert server.connections == 2


async def test_header_with_a_line_break_is_rejected() -> None:
    destination = parse_target("http://127.0.0.1:1/mcp", allow_private=True)
    with pytest.raises(ValueError, match="x-a"):
        RequestHead(destination, {"x-a": "1\r\nx-b: 2"})


def _endless(head: bytes, chunk: bytes, limit: int) -> tuple[Answer, list[int]]:
    """Sends `head`, then `chunk` repeatedly until the client closes; records the sizes sent."""
    sent: list[int] = []

    async def endless(number: int, writer: asyncio.StreamWriter) -> bool:
        writer.write(head)
        try:
            while sum(sent) < limit:
                writer.write(chunk)
                sent.append(len(chunk))
                await writer.drain()
        except ConnectionError:
            return False
        return True

    return endless, sent


@pytest.mark.parametrize(
    ("head", "chunk"),
    [
        (b"HTTP/1.1 200 OK\r\nx-big: ", b"y" * 65536),
        (b"HTTP/1.1 200 OK\r\n", b"x-a: b\r\n" * 8192),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nx-big: ", b"y" * 65536),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 4096),
    ],
    ids=["one header", "many headers", "trailer", "interim responses"],
)
async def test_threat_33_endless_head_or_trailer_is_rejected(head: bytes, chunk: bytes) -> None:
    limit = 64 * 1024 * 1024
    endless, sent = _endless(head, chunk, limit)
    async with pool(endless) as (connections, request, _):
        with pytest.raises(Fault) as rejected:
            await asyncio.wait_for(send(connections, request), 20)
        assert rejected.value.kind is Kind.TOO_LARGE
        assert sum(sent) < limit


async def test_threat_33_endless_trailer_ends_a_stream() -> None:
    stream = (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n2\r\n:\n\r\n0\r\nx: "
    )
    endless, _ = _endless(stream, b"y" * 65536, 64 * 1024 * 1024)
    async with pool(endless) as (connections, request, _):
        leased = await connections.exchange(request)
        assert await leased.response.read() == b":\n"
        with pytest.raises(Fault) as rejected:
            await asyncio.wait_for(leased.response.read(), 20)
        leased.release()
        assert rejected.value.kind is Kind.TOO_LARGE


async def test_chunked_responses_are_distinguished_from_endless_heads() -> None:
    size = 90_000

    async def chunks(number: int, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\nx: " + b"y" * 9000)
        await writer.drain()
        await asyncio.sleep(0)
        writer.write(b"\r\ncontent-length: %d\r\n\r\n" % size + b"z" * (size - 1))
        await writer.drain()
        await asyncio.sleep(0)
        writer.write(b"z")
        return True

    async with pool(chunks, max_bytes=size) as (connections, request, server):
        for _ in range(20):
            assert await send(connections, request) == b"z" * size
        assert server.connections == 1


@pytest.mark.parametrize("head", [b"HTTP/1.0 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nx: y\r\n\r\n"])
async def test_response_without_a_length_ends_with_its_connection(head: bytes) -> None:
    async def until_the_end(number: int, writer: asyncio.StreamWriter) -> bool:
        writer.write(head + b'{"a":')
        await writer.drain()
        await asyncio.sleep(0)
        writer.write(b"1}")
        return False

    async with pool(until_the_end) as (connections, request, server):
        assert [await send(connections, request) for _ in range(3)] == [b'{"a":1}'] * 3
        assert (server.connections, server.requests) == (3, 3)


async def test_stream_without_a_length_ends_with_its_connection() -> None:
    async def stream(number: int, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: 1\n\n")
        return False

    async with pool(stream) as (connections, request, _):
        leased = await connections.exchange(request)
        assert [await leased.response.read(), await leased.response.read()] == [b"data: 1\n\n", b""]
        leased.release()
        assert not connections._idle


@pytest.mark.parametrize(
    "truncated",
    [
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json",
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 9\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
    ],
)
async def test_truncated_response_is_an_unavailable_fault(truncated: bytes) -> None:
    async def break_off(number: int, writer: asyncio.StreamWriter) -> bool:
        # The first response has no length either, and leaves the connection reusable.
        writer.write(b"HTTP/1.1 204 No Content\r\n\r\n" if number == 1 else truncated)
        return number == 1

    async with pool(break_off) as (connections, request, _):
        assert await send(connections, request) == b""
        with pytest.raises(Fault) as error:
            await send(connections, request)
        assert error.value.kind is Kind.UNAVAILABLE


async def test_connection_with_unsolicited_data_is_not_reused() -> None:
    async def twice(number: int, writer: asyncio.StreamWriter) -> bool:
        writer.write(OK + OK if number == 1 else OK)
        return True

    async with pool(twice) as (connections, request, server):
        assert [await send(connections, request) for _ in range(2)] == [b"{}"] * 2
        assert server.connections == 2


async def test_connection_close_header_closes_the_connection() -> None:
    closed = asyncio.Event()

    async def announce_close(number: int, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}")
        await writer.drain()
        writer.transport.set_protocol(_Lost(closed))
        await closed.wait()
        return False

    class _Lost(asyncio.Protocol):
        def __init__(self, event: asyncio.Event) -> None:
            self._event = event

        def connection_lost(self, exc: Exception | None) -> None:
            self._event.set()

    async with pool(announce_close) as (connections, request, _):
        assert await send(connections, request) == b"{}"
        await asyncio.wait_for(closed.wait(), 5)
