"""A loopback proxy that adds an `Authorization` header, which the suite's command line cannot send.

It changes nothing else of a request but its `Connection`: one request a connection, so that all after the head can
pass as bytes. The client's `Host`, its white space and its leaving reach the gateway as they are.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Final

_HEAD_LIMIT: Final = 64 * 1024
_CHUNK: Final = 64 * 1024


@asynccontextmanager
async def proxy(port: int, upstream: int, authorization: str) -> AsyncGenerator[None]:
    """Listen on `port` of 127.0.0.1 and pass every request on to `upstream`."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            await _pass_on(reader, writer, upstream, authorization)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port, limit=_HEAD_LIMIT)
    try:
        yield
    finally:
        server.close()


def with_authorization(head: bytes, authorization: str) -> bytes:
    """The request's head with the header added and the connection made to end after its response."""
    request_line, *fields = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    kept = [field for field in fields if field.split(b":", 1)[0].lower() not in (b"authorization", b"connection")]
    added = [b"Authorization: " + authorization.encode("ascii"), b"Connection: close"]
    return b"\r\n".join([request_line, *kept, *added]) + b"\r\n\r\n"


async def _pass_on(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, upstream: int, authorization: str
) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    far_reader, far_writer = await asyncio.open_connection("127.0.0.1", upstream)
    try:
        far_writer.write(with_authorization(head, authorization))
        there = asyncio.create_task(_pump(reader, far_writer))
        back = asyncio.create_task(_pump(far_reader, writer))
        # Whoever leaves first ends both: a response is over, or a client has hung up.
        _, pending = await asyncio.wait({there, back}, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        await asyncio.wait({there, back})
    finally:
        far_writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while chunk := await reader.read(_CHUNK):
            writer.write(chunk)
            await writer.drain()
