"""The thin HTTP client, against a server that misbehaves on purpose."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from gateway.errors import Fault, Kind
from gateway.outbound import target
from gateway.upstream.http.pool import ConnectionPool
from gateway.upstream.http.request import RequestHead

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
async def pool(answer: Answer, **more: float) -> AsyncIterator[tuple[ConnectionPool, bytes, Server]]:
    serving = Server(answer)
    server = await asyncio.start_server(serving, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    there = target(f"http://127.0.0.1:{port}/mcp", allow_private=True)
    limits = {"max_bytes": 1000, **more}
    made = ConnectionPool("far", there, **limits)
    try:
        yield made, RequestHead(there, {}).post(b"", b"{}"), serving
    finally:
        made.close()
        server.close()


async def keep(number: int, writer: asyncio.StreamWriter) -> bool:
    writer.write(OK)
    return True


async def ask(made: ConnectionPool, request: bytes, safe: bool = False) -> bytes | None:
    leased = await made.exchange(request, safe)
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


@pytest.mark.parametrize(("safe", "requests"), [(False, 2), (True, 3)])
async def test_what_may_have_been_carried_out_is_sent_again_only_if_that_is_safe(safe: bool, requests: int) -> None:
    """The server read the second request on a kept connection, and died over it."""

    async def die(number: int, writer: asyncio.StreamWriter) -> bool:
        if number != 2:
            writer.write(OK)
        return number != 2

    async with pool(die) as (made, request, server):
        await ask(made, request)
        if safe:
            assert await ask(made, request, safe) == b"{}"
        else:
            with pytest.raises(Fault) as broken:
                await ask(made, request, safe)
            assert broken.value.kind is Kind.UNAVAILABLE
        assert server.requests == requests


async def test_a_redirect_is_an_answer_and_is_not_followed() -> None:
    async def elsewhere(number: int, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254/\r\ncontent-length: 0\r\n\r\n")
        return True

    async with pool(elsewhere) as (made, request, server):
        leased = await made.exchange(request)
        leased.release()
        assert leased.response.status == 302
        assert server.requests == 1


async def test_a_connection_that_nobody_needs_is_closed_after_a_while() -> None:
    async with pool(keep, idle_seconds=0.05) as (made, request, server):
        await ask(made, request)
        async with asyncio.timeout(5):
            while made._idle:
                await asyncio.sleep(0.01)
        await ask(made, request)
        assert server.connections == 2


async def test_the_second_address_of_a_name_is_tried_when_the_first_refuses() -> None:
    async def both(host: str, port: int) -> list[str]:
        return ["127.0.0.2", "127.0.0.1"]

    server = await asyncio.start_server(Server(keep), "127.0.0.1", 0)
    there = target(f"http://far.test:{server.sockets[0].getsockname()[1]}/mcp", allow_private=True)
    made = ConnectionPool("far", there, max_bytes=1000, resolver=both)
    try:
        assert await ask(made, RequestHead(there, {}).post(b"", b"{}")) == b"{}"
    finally:
        made.close()
        server.close()


async def test_threat_13_a_name_with_one_private_address_among_its_own_is_not_connected_to() -> None:
    async def rebinding(host: str, port: int) -> list[str]:
        return ["93.184.216.34", "127.0.0.1"]

    there = target("https://far.test/mcp")
    made = ConnectionPool("far", there, max_bytes=1000, resolver=rebinding)
    with pytest.raises(Fault) as refused:
        await ask(made, RequestHead(there, {}).post(b"", b"{}"))
    assert refused.value.kind is Kind.DENIED


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


async def test_a_caller_that_gives_up_leaves_no_connection_half_read() -> None:
    asked = asyncio.Event()

    async def never(number: int, writer: asyncio.StreamWriter) -> bool:
        if number == 1:
            asked.set()
            await asyncio.Event().wait()
        writer.write(OK)
        return True

    async with pool(never) as (made, request, server):
        task = asyncio.create_task(ask(made, request))
        await asyncio.wait_for(asked.wait(), 5)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert await ask(made, request) == b"{}"
        assert server.connections == 2


async def test_a_header_that_would_break_out_of_its_line_cannot_be_set() -> None:
    there = target("http://127.0.0.1:1/mcp", allow_private=True)
    with pytest.raises(ValueError, match="x-a"):
        RequestHead(there, {"x-a": "1\r\nx-b: 2"})


def _broken_up(head: bytes, piece: bytes, most: int) -> tuple[Answer, list[int]]:
    """Sends `head`, then `piece` again and again until the other side has had enough; counts what was sent."""
    sent: list[int] = []

    async def endless(number: int, writer: asyncio.StreamWriter) -> bool:
        writer.write(head)
        try:
            while sum(sent) < most:
                writer.write(piece)
                sent.append(len(piece))
                await writer.drain()
        except ConnectionError:
            return False
        return True

    return endless, sent


@pytest.mark.parametrize(
    ("head", "piece"),
    [
        (b"HTTP/1.1 200 OK\r\nx-big: ", b"y" * 65536),
        (b"HTTP/1.1 200 OK\r\n", b"x-a: b\r\n" * 8192),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nx-big: ", b"y" * 65536),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 4096),
    ],
    ids=["one header", "many headers", "a trailer", "heads that promise another"],
)
async def test_threat_33_a_head_or_trailer_without_end_is_refused(head: bytes, piece: bytes) -> None:
    most = 64 * 1024 * 1024
    endless, sent = _broken_up(head, piece, most)
    async with pool(endless) as (made, request, _):
        with pytest.raises(Fault) as refused:
            await asyncio.wait_for(ask(made, request), 20)
        assert refused.value.kind is Kind.TOO_LARGE
        assert sum(sent) < most


async def test_threat_33_a_trailer_without_end_ends_a_stream() -> None:
    stream = (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n2\r\n:\n\r\n0\r\nx: "
    )
    endless, _ = _broken_up(stream, b"y" * 65536, 64 * 1024 * 1024)
    async with pool(endless) as (made, request, _):
        leased = await made.exchange(request)
        assert await leased.response.chunk() == b":\n"
        with pytest.raises(Fault) as refused:
            await asyncio.wait_for(leased.response.chunk(), 20)
        leased.release()
        assert refused.value.kind is Kind.TOO_LARGE


async def test_answers_that_come_in_pieces_alike_are_told_from_heads_without_end() -> None:
    size = 90_000

    async def pieces(number: int, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\nx: " + b"y" * 9000)
        await writer.drain()
        await asyncio.sleep(0)
        writer.write(b"\r\ncontent-length: %d\r\n\r\n" % size + b"z" * (size - 1))
        await writer.drain()
        await asyncio.sleep(0)
        writer.write(b"z")
        return True

    async with pool(pieces, max_bytes=size) as (made, request, server):
        for _ in range(20):
            assert await ask(made, request) == b"z" * size
        assert server.connections == 1


@pytest.mark.parametrize("head", [b"HTTP/1.0 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nx: y\r\n\r\n"])
async def test_an_answer_that_names_no_length_ends_with_its_connection(head: bytes) -> None:
    async def until_the_end(number: int, writer: asyncio.StreamWriter) -> bool:
        writer.write(head + b'{"a":')
        await writer.drain()
        await asyncio.sleep(0)
        writer.write(b"1}")
        return False

    async with pool(until_the_end) as (made, request, server):
        assert [await ask(made, request) for _ in range(3)] == [b'{"a":1}'] * 3
        assert (server.connections, server.requests) == (3, 3)


async def test_a_stream_that_names_no_length_ends_with_its_connection() -> None:
    async def stream(number: int, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: 1\n\n")
        return False

    async with pool(stream) as (made, request, _):
        leased = await made.exchange(request)
        assert [await leased.response.chunk(), await leased.response.chunk()] == [b"data: 1\n\n", b""]
        leased.release()
        assert not made._idle


@pytest.mark.parametrize(
    "cut",
    [
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json",
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 9\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
    ],
)
async def test_an_answer_that_ends_before_it_said_it_would_broke_off(cut: bytes) -> None:
    async def break_off(number: int, writer: asyncio.StreamWriter) -> bool:
        # The first leaves the connection to be used again, and names no length either.
        writer.write(b"HTTP/1.1 204 No Content\r\n\r\n" if number == 1 else cut)
        return number == 1

    async with pool(break_off) as (made, request, _):
        assert await ask(made, request) == b""
        with pytest.raises(Fault) as broken:
            await ask(made, request)
        assert broken.value.kind is Kind.UNAVAILABLE


async def test_a_connection_on_which_more_came_than_was_asked_for_is_not_used_again() -> None:
    async def twice(number: int, writer: asyncio.StreamWriter) -> bool:
        writer.write(OK + OK if number == 1 else OK)
        return True

    async with pool(twice) as (made, request, server):
        assert [await ask(made, request) for _ in range(2)] == [b"{}"] * 2
        assert server.connections == 2


async def test_a_connection_that_the_server_says_it_will_close_is_closed() -> None:
    gone = asyncio.Event()

    async def says_so(number: int, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}")
        await writer.drain()
        writer.transport.set_protocol(_Lost(gone))
        await gone.wait()
        return False

    class _Lost(asyncio.Protocol):
        def __init__(self, told: asyncio.Event) -> None:
            self._told = told

        def connection_lost(self, exc: Exception | None) -> None:
            self._told.set()

    async with pool(says_so) as (made, request, _):
        assert await ask(made, request) == b"{}"
        await asyncio.wait_for(gone.wait(), 5)
