"""The channel of the SSE transport, against a scripted server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gateway.contract import Json
from gateway.errors import Fault, Kind
from gateway.outbound import parse_target
from gateway.upstream.http.pool import ConnectionPool
from gateway.upstream.http.request import RequestHead
from gateway.upstream.http.sse import EventChannel, SessionLost
from gateway.upstream.http.target import HttpTarget

STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"


class ScriptedServer:
    """Sends `events` to every GET and keeps the stream open; responds to every POST with `status`."""

    def __init__(self, events: bytes, status: int = 202, last: bytes = b"") -> None:
        self._events = events
        self._status = status
        self._last = last
        self.posted_paths: list[str] = []
        self.disconnect = asyncio.Event()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            if head.startswith("GET"):
                writer.write(self._events)
                await writer.drain()
                await self.disconnect.wait()
                writer.write(self._last)
            else:
                self.posted_paths.append(head.split()[1])
                writer.write(b"HTTP/1.1 %d X\r\ncontent-length: 0\r\nconnection: close\r\n\r\n" % self._status)
                await writer.drain()
        finally:
            writer.close()


class Recorder:
    def __init__(self) -> None:
        self.messages: list[Json] = []
        self.closed = asyncio.Event()


@asynccontextmanager
async def open_channel(
    server: ScriptedServer, recorder: Recorder, max_bytes: int = 1000
) -> AsyncIterator[EventChannel]:
    tcp_server = await asyncio.start_server(server, "127.0.0.1", 0)
    destination = parse_target(f"http://127.0.0.1:{tcp_server.sockets[0].getsockname()[1]}/a/sse", allow_private=True)
    target = HttpTarget(ConnectionPool("far", destination, max_bytes=1000), RequestHead(destination, {}))
    try:
        channel_opened = await EventChannel.open(
            "far", target, destination, max_bytes, recorder.messages.append, recorder.closed.set
        )
        try:
            yield channel_opened
        finally:
            await channel_opened.stop()
    finally:
        server.disconnect.set()
        await target.close()
        tcp_server.close()


@pytest.mark.parametrize(("endpoint", "path"), [("messages?s=1", "/a/messages?s=1"), ("/m/?s=1", "/m/?s=1")])
async def test_messages_are_posted_to_the_endpoint_and_received_from_the_stream(endpoint: str, path: str) -> None:
    events = f'event: endpoint\ndata: {endpoint}\n\nevent: message\ndata: {{"id": 1}}\n\ndata: nonsense\n\n'
    server, recorder = ScriptedServer(STREAM + events.encode()), Recorder()
    async with open_channel(server, recorder) as channel_opened:
        await channel_opened.write({"jsonrpc": "2.0"})
        assert server.posted_paths == [path]
        assert recorder.messages == [{"id": 1}]
        assert not recorder.closed.is_set()
        server.disconnect.set()
        await asyncio.wait_for(recorder.closed.wait(), 5)


@pytest.mark.parametrize(
    "endpoint",
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
async def test_threat_13_endpoint_on_another_server_is_rejected(endpoint: str) -> None:
    server = ScriptedServer(STREAM + f"event: endpoint\ndata: {endpoint}\n\n".encode())
    with pytest.raises(Fault):
        async with open_channel(server, Recorder()):
            pass
    assert server.posted_paths == []


async def test_server_without_an_event_stream_is_unavailable() -> None:
    server = ScriptedServer(b"HTTP/1.1 405 No\r\ncontent-length: 0\r\n\r\n")
    with pytest.raises(Fault) as error:
        async with open_channel(server, Recorder()):
            pass
    assert error.value.kind is Kind.UNAVAILABLE


async def test_lost_session_is_distinguished_from_other_errors() -> None:
    for status, expected in ((404, SessionLost), (500, Fault)):
        async with open_channel(
            ScriptedServer(STREAM + b"event: endpoint\ndata: /m\n\n", status), Recorder()
        ) as channel_opened:
            with pytest.raises(expected):
                await channel_opened.write({"jsonrpc": "2.0"})


async def test_threat_33_message_over_the_limit_ends_the_session() -> None:
    recorder = Recorder()
    server = ScriptedServer(STREAM + b"event: endpoint\ndata: /m\n\n", last=b"data: " + b"x" * 2000 + b"\n\n")
    async with open_channel(server, recorder):
        server.disconnect.set()
        await asyncio.wait_for(recorder.closed.wait(), 5)
    assert recorder.messages == []


@pytest.mark.parametrize("malformed", [b'{"a":"\xff"}', b'{"a":' + b"[" * 100_000, b"[1]", b"nonsense"])
async def test_malformed_message_is_ignored(malformed: bytes) -> None:
    recorder = Recorder()
    events = b'event: endpoint\ndata: /m\n\ndata: %b\n\ndata: {"id": 1}\n\n' % malformed
    async with open_channel(ScriptedServer(STREAM + events), recorder, 200_000):
        async with asyncio.timeout(5):
            while not recorder.messages:
                await asyncio.sleep(0)
        assert recorder.messages == [{"id": 1}]
        assert not recorder.closed.is_set()
