"""A loopback proxy that adds an `Authorization` header, which the suite's command line cannot send.

Besides that it changes only the `Connection` header: one request per connection, so that the body can be forwarded as
raw bytes. The client's `Host` header, white space and disconnects reach the gateway unchanged.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Final

_HEAD_LIMIT: Final = 64 * 1024
_CHUNK: Final = 64 * 1024


@asynccontextmanager
async def authorizing_proxy(port: int, upstream: int, authorization: str) -> AsyncGenerator[None]:
    """Listen on 127.0.0.1:`port` and forward every request to the port `upstream`."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            await _forward(reader, writer, upstream, authorization)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port, limit=_HEAD_LIMIT)
    try:
        yield
    finally:
        server.close()


def with_authorization(head: bytes, authorization: str) -> bytes:
    """Return the request head with the Authorization header and `Connection: close`."""
    request_line, *fields = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    unchanged = [field for field in fields if field.split(b":", 1)[0].lower() not in (b"authorization", b"connection")]
    added = [b"Authorization: " + authorization.encode("ascii"), b"Connection: close"]
    return b"\r\n".join([request_line, *unchanged, *added]) + b"\r\n\r\n"


async def _forward(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, upstream: int, authorization: str
) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    upstream_reader, upstream_writer = await asyncio.open_connection("127.0.0.1", upstream)
    try:
        upstream_writer.write(with_authorization(head, authorization))
        outbound = asyncio.create_task(_pump(reader, upstream_writer))
        inbound = asyncio.create_task(_pump(upstream_reader, writer))
        # The end of either direction closes both: the response is complete or the client has disconnected.
        _, pending = await asyncio.wait({outbound, inbound}, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        await asyncio.wait({outbound, inbound})
    finally:
        upstream_writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while chunk := await reader.read(_CHUNK):
            writer.write(chunk)
            await writer.drain()
