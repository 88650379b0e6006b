"""The thin HTTP client, against a server that misbehaves on purpose."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from gateway.errors import Fault, Kind
from gateway.outbound import target
from gateway.upstream.http.head import Head
from gateway.upstream.http.pool import Pool

Answer = Callable[[int, asyncio.StreamWriter], Awaitable[bool]]
"""(number of the request, where to) -> whether the connection stays open."""

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
async def pool(answer: Answer, **more: int) -> AsyncIterator[tuple[Pool, bytes, Server]]:
    serving = Server(answer)
    server = await asyncio.start_server(serving, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    there = target(f"http://127.0.0.1:{port}/mcp", allow_private=True)
    limits = {"max_connections": 4, "max_waiting": 4, "max_bytes": 1000, **more}
    made = Pool("far", there, **limits)
    try:
        yield made, Head(there, {}).post([], b"{}"), serving
    finally:
        made.close()
        server.close()


async def keep(number: int, writer: asyncio.StreamWriter) -> bool:
    writer.write(OK)
    return True


async def ask(made: Pool, request: bytes) -> bytes | None:
    leased = await made.exchange(request)
    try:
        return leased.response.body
    finally:
        leased.release()


async def test_one_connection_serves_many_requests() -> None:
    async with pool(keep) as (made, request, server):
        assert [await ask(made, request) for _ in range(5)] == [b"{}"] * 5
        assert (server.connections, server.requests) == (1, 5)


async def test_a_connection_closed_while_idle_is_replaced_without_anyone_noticing() -> None:
    async def close_each(number: int, writer: asyncio.StreamWriter) -> bool:
        writer.write(OK)
        return False

    async with pool(close_each) as (made, request, server):
        assert [await ask(made, request) for _ in range(3)] == [b"{}"] * 3
        assert server.requests == 3


async def test_an_answer_that_began_is_never_asked_for_again() -> None:
    async def break_off(number: int, writer: asyncio.StreamWriter) -> bool:
        writer.write(OK if number == 1 else b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{")
        return number == 1

    async with pool(break_off) as (made, request, server):
        await ask(made, request)
        with pytest.raises(Fault) as broken:
            await ask(made, request)
        assert broken.value.kind is Kind.UNAVAILABLE
        assert server.requests == 2


async def test_a_new_connection_that_is_closed_without_an_answer_is_not_tried_again() -> None:
    async def nothing(number: int, writer: asyncio.StreamWriter) -> bool:
        return False

    async with pool(nothing) as (made, request, server):
        with pytest.raises(Fault):
            await ask(made, request)
        assert server.requests == 1


async def test_threat_33_an_answer_over_the_limit_or_compressed_is_refused() -> None:
    async def large(number: int, writer: asyncio.StreamWriter) -> bool:
        if number == 1:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2000\r\n\r\n" + b"x" * 2000)
        else:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 2\r\n\r\n{}")
        return True

    async with pool(large) as (made, request, _):
        with pytest.raises(Fault) as refused:
            await ask(made, request)
        assert refused.value.kind is Kind.TOO_LARGE
        with pytest.raises(Fault) as refused:
            await ask(made, request)
        assert refused.value.kind is Kind.UNAVAILABLE


async def test_a_stream_comes_piece_by_piece_and_a_slow_reader_makes_the_server_wait() -> None:
    pieces = 64

    async def stream(number: int, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        for _ in range(pieces):
            writer.write(b"10000\r\n" + b"x" * 65536 + b"\r\n")
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        return True

    async with pool(stream) as (made, request, _):
        leased = await made.exchange(request)
        size = 0
        while piece := await leased.response.chunk():
            size += len(piece)
            assert leased.response._pending < 2 * 1024 * 1024
        leased.release()
        assert size == pieces * 65536
        assert len(made._idle) == 1


async def test_whoever_waits_too_long_a_queue_is_told_at_once_and_places_are_handed_on() -> None:
    gate = asyncio.Event()

    async def slow(number: int, writer: asyncio.StreamWriter) -> bool:
        await gate.wait()
        writer.write(OK)
        return True

    async with pool(slow, max_connections=1, max_waiting=1) as (made, request, server):
        first = asyncio.create_task(ask(made, request))
        second = asyncio.create_task(ask(made, request))
        while not (server.requests and made._waiting):
            await asyncio.sleep(0.001)
        with pytest.raises(Fault) as full:
            await ask(made, request)
        assert full.value.kind is Kind.UNAVAILABLE
        gate.set()
        assert await asyncio.gather(first, second) == [b"{}", b"{}"]
        assert made._free == 1


async def test_a_caller_that_gives_up_leaves_no_connection_half_read() -> None:
    async def never(number: int, writer: asyncio.StreamWriter) -> bool:
        if number == 1:
            await asyncio.Event().wait()
        writer.write(OK)
        return True

    async with pool(never) as (made, request, server):
        task = asyncio.create_task(ask(made, request))
        while not server.requests:
            await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert await ask(made, request) == b"{}"
        assert made._free == 4


async def test_a_header_that_would_break_out_of_its_line_cannot_be_set() -> None:
    there = target("http://127.0.0.1:1/mcp", allow_private=True)
    with pytest.raises(ValueError, match="x-a"):
        Head(there, {"x-a": "1\r\nx-b: 2"})
