"""The older transport's channel, against a server whose words are a script."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gateway.contract import Json
from gateway.errors import Fault, Kind
from gateway.outbound import target
from gateway.upstream.http.pool import ConnectionPool
from gateway.upstream.http.request import RequestHead
from gateway.upstream.http.sse import EventChannel, SessionLost
from gateway.upstream.http.target import HttpTarget

STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"


class Scripted:
    """Says `words` to every GET and then holds the stream; answers every POST with `status`."""

    def __init__(self, words: bytes, status: int = 202, last: bytes = b"") -> None:
        self._words = words
        self._status = status
        self._last = last
        self.posted: list[str] = []
        self.hang_up = asyncio.Event()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            if head.startswith("GET"):
                writer.write(self._words)
                await writer.drain()
                await self.hang_up.wait()
                writer.write(self._last)
            else:
                self.posted.append(head.split()[1])
                writer.write(b"HTTP/1.1 %d X\r\ncontent-length: 0\r\nconnection: close\r\n\r\n" % self._status)
                await writer.drain()
        finally:
            writer.close()


class Ears:
    def __init__(self) -> None:
        self.heard: list[Json] = []
        self.ended = asyncio.Event()


@asynccontextmanager
async def channel(server: Scripted, ears: Ears, max_bytes: int = 1000) -> AsyncIterator[EventChannel]:
    listening = await asyncio.start_server(server, "127.0.0.1", 0)
    there = target(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/a/sse", allow_private=True)
    site = HttpTarget(ConnectionPool("far", there, max_bytes=1000), RequestHead(there, {}))
    try:
        opened = await EventChannel.open("far", site, there, max_bytes, ears.heard.append, ears.ended.set)
        try:
            yield opened
        finally:
            await opened.stop()
    finally:
        server.hang_up.set()
        await site.close()
        listening.close()


@pytest.mark.parametrize(("named", "path"), [("messages?s=1", "/a/messages?s=1"), ("/m/?s=1", "/m/?s=1")])
async def test_messages_go_where_the_stream_says_and_come_by_the_stream(named: str, path: str) -> None:
    words = f'event: endpoint\ndata: {named}\n\nevent: message\ndata: {{"id": 1}}\n\ndata: nonsense\n\n'
    server, ears = Scripted(STREAM + words.encode()), Ears()
    async with channel(server, ears) as opened:
        await opened.write({"jsonrpc": "2.0"})
        assert server.posted == [path]
        assert ears.heard == [{"id": 1}]
        assert not ears.ended.is_set()
        server.hang_up.set()
        await asyncio.wait_for(ears.ended.wait(), 5)


@pytest.mark.parametrize(
    "elsewhere",
    [
        "http://[",
        "//[::1",
        "http://127.0.0.2/x",
        "//169.254.169.254/x",
        "https://127.0.0.1/x",
        "file:///etc/passwd",
        "http://127.0.0.1:1/x",
    ],
)
async def test_threat_13_a_stream_cannot_have_messages_posted_to_another_server(elsewhere: str) -> None:
    server = Scripted(STREAM + f"event: endpoint\ndata: {elsewhere}\n\n".encode())
    with pytest.raises(Fault):
        async with channel(server, Ears()):
            pass
    assert server.posted == []


async def test_a_server_without_such_a_stream_is_unavailable() -> None:
    server = Scripted(b"HTTP/1.1 405 No\r\ncontent-length: 0\r\n\r\n")
    with pytest.raises(Fault) as refused:
        async with channel(server, Ears()):
            pass
    assert refused.value.kind is Kind.UNAVAILABLE


async def test_a_session_that_the_server_forgot_is_told_apart_from_other_refusals() -> None:
    for status, expected in ((404, SessionLost), (500, Fault)):
        async with channel(Scripted(STREAM + b"event: endpoint\ndata: /m\n\n", status), Ears()) as opened:
            with pytest.raises(expected):
                await opened.write({"jsonrpc": "2.0"})


async def test_threat_33_a_message_over_the_limit_ends_the_session() -> None:
    ears = Ears()
    server = Scripted(STREAM + b"event: endpoint\ndata: /m\n\n", last=b"data: " + b"x" * 2000 + b"\n\n")
    async with channel(server, ears):
        server.hang_up.set()
        await asyncio.wait_for(ears.ended.wait(), 5)
    assert ears.heard == []


@pytest.mark.parametrize("odd", [b'{"a":"\xff"}', b'{"a":' + b"[" * 100_000, b"[1]", b"nonsense"])
async def test_a_message_that_cannot_be_read_is_passed_over(odd: bytes) -> None:
    ears = Ears()
    words = b'event: endpoint\ndata: /m\n\ndata: %b\n\ndata: {"id": 1}\n\n' % odd
    async with channel(Scripted(STREAM + words), ears, 200_000):
        async with asyncio.timeout(5):
            while not ears.heard:
                await asyncio.sleep(0)
        assert ears.heard == [{"id": 1}]
        assert not ears.ended.is_set()
