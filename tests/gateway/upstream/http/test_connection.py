"""One connection, fed with bytes by the test."""

import asyncio
import socket
from typing import Any

from gateway.upstream.http.connection import MAX_BUFFERED_BYTES, UpstreamConnection

STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


class FakeTransport(asyncio.Transport):
    """A transport that only records its state."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__({"socket": sock})
        self.reading = True
        self.closed = False

    def write(self, data: Any) -> None:
        """Ignored."""

    def abort(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def is_reading(self) -> bool:
        return self.reading

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


async def test_closing_an_ended_stream_with_unread_chunks_resumes_reading() -> None:
    """The unread chunks exceed the buffer limit, and the response was in the first one."""
    with socket.socket() as sock:
        connection, transport = UpstreamConnection("far", 1000), FakeTransport(sock)
        connection.connection_made(transport)
        future = connection.send(b"")
        connection.data_received(STREAM + b"5\r\ndata:\r\n")
        response = await future
        assert await response.read() == b"data:"
        connection.data_received(b"%x\r\n%b\r\n0\r\n\r\n" % (MAX_BUFFERED_BYTES + 1, b"x" * (MAX_BUFFERED_BYTES + 1)))
        assert not transport.reading
        response.close()
        assert transport.reading
        assert connection.is_open
        assert connection.is_reusable
