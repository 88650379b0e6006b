"""One connection, fed byte by byte as the test says."""

import asyncio
import socket
from typing import Any

from gateway.upstream.http.connection import READ_AHEAD, UpstreamConnection

STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


class Wires(asyncio.Transport):
    """A transport that only notes what it is told."""

    def __init__(self, end: socket.socket) -> None:
        super().__init__({"socket": end})
        self.reading = True
        self.closed = False

    def write(self, data: Any) -> None:
        """Nobody reads it."""

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


async def test_a_stream_that_was_over_before_it_was_read_leaves_its_connection_readable() -> None:
    """More stood unread than makes the server wait, and the answer was among the first of it."""
    with socket.socket() as end:
        connection, wires = UpstreamConnection("far", 1000), Wires(end)
        connection.connection_made(wires)
        answer = connection.ask(b"")
        connection.data_received(STREAM + b"5\r\ndata:\r\n")
        response = await answer
        assert await response.chunk() == b"data:"
        connection.data_received(b"%x\r\n%b\r\n0\r\n\r\n" % (READ_AHEAD + 1, b"x" * (READ_AHEAD + 1)))
        assert not wires.reading
        response.close()
        assert wires.reading
        assert connection.open
        assert connection.reusable
