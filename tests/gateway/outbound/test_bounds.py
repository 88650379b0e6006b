"""Limits on the size and duration of responses."""

import asyncio
import gzip
import socket
import tracemalloc

import httpcore
import httpx
import pytest

from gateway.errors import Fault, Kind
from gateway.outbound import create_client

from .peers import LOOPBACK, OK, Reply, peer


async def _endless_body(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"4000\r\n" + b"x" * 0x4000 + b"\r\n")
        await writer.drain()


async def test_threat_33_endless_body_is_rejected_and_its_connection_closed() -> None:
    async with peer(_endless_body) as server, create_client(allow_private=LOOPBACK, max_bytes=100_000) as http:
        with pytest.raises(Fault) as caught:
            await http.get(server.url)
        assert caught.value.kind is Kind.TOO_LARGE
        assert caught.value.details == {"max_bytes": 100_000}
        await asyncio.wait_for(server.disconnected.wait(), 5)


async def test_streamed_body_is_limited_too() -> None:
    received = 0

    async def read(http: httpx.AsyncClient, url: str) -> None:
        nonlocal received
        async with http.stream("GET", url) as response:
            async for chunk in response.aiter_bytes():
                received += len(chunk)

    async with peer(_endless_body) as server, create_client(allow_private=LOOPBACK, max_bytes=100_000) as http:
        with pytest.raises(Fault) as caught:
            await read(http, server.url)
    assert caught.value.kind is Kind.TOO_LARGE
    assert 0 < received <= 100_000


BOMB = gzip.compress(bytes(32 * 1024 * 1024), compresslevel=1)


async def test_body_of_exactly_the_limit_is_accepted() -> None:
    async with peer() as server, create_client(allow_private=LOOPBACK, max_bytes=2) as http:
        assert (await http.get(server.url)).content == b"ok"


@pytest.mark.parametrize("encoding", [b"gzip", b"GZip", b"deflate", b"identity, gzip", b"br", b"unknown"])
async def test_threat_33_compressed_response_is_rejected_before_decompression(encoding: bytes) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: %s\r\nContent-Length: %d\r\n\r\n" % (encoding, len(BOMB))
    async with peer(head + BOMB) as server, create_client(allow_private=LOOPBACK) as http:
        tracemalloc.start()
        try:
            with pytest.raises(Fault, match="compressed") as caught:
                await http.get(server.url)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert caught.value.kind is Kind.DENIED
    assert peak < 4 * 1024 * 1024


async def test_rejected_responses_do_not_exhaust_the_connection_pool() -> None:
    reply = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 9\r\n\r\n"
    async with peer(reply) as server, create_client(allow_private=LOOPBACK, timeout=5) as http:
        for _ in range(20):  # more than the pool has connections
            with pytest.raises(Fault, match="compressed"):
                await http.get(server.url)
        server.reply = OK
        assert (await http.get(server.url)).text == "ok"


async def test_response_with_identity_encoding_is_accepted() -> None:
    reply = b"HTTP/1.1 200 OK\r\nContent-Encoding: identity\r\nContent-Length: 2\r\n\r\nok"
    async with peer(reply) as server, create_client(allow_private=LOOPBACK) as http:
        assert (await http.get(server.url)).text == "ok"


async def _never_answer(writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def _slow_body(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.01)


async def _endless_informational(writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"HTTP/1.1 102 Processing\r\n\r\n")
        await writer.drain()
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("reply", [_never_answer, _slow_body, _endless_informational])
async def test_timeout_covers_the_complete_response(reply: Reply) -> None:
    async with peer(reply) as server, create_client(allow_private=LOOPBACK, timeout=0.3) as http:
        async with asyncio.timeout(5):
            with pytest.raises(Fault, match="did not answer in time") as caught:
                await http.get(server.url, timeout=None)
    assert caught.value.kind is Kind.TIMEOUT


async def test_timeout_covers_name_resolution() -> None:
    async def never_resolve(host: str, port: int) -> list[str]:
        await asyncio.Event().wait()
        return []

    async with create_client(resolver=never_resolve, timeout=0.1) as http:
        with pytest.raises(Fault) as caught:
            await http.get("https://slow.example/")
    assert caught.value.kind is Kind.TIMEOUT


async def test_client_works_again_after_timeouts() -> None:
    async with peer(_slow_body) as server, create_client(allow_private=LOOPBACK, timeout=0.05) as http:
        for _ in range(20):  # more than the pool has connections
            with pytest.raises(Fault, match="did not answer in time"):
                await http.get(server.url)
        server.reply = OK
        assert (await http.get(server.url)).text == "ok"


async def test_closed_port_and_invalid_response_are_unavailable() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        async with create_client(allow_private=LOOPBACK) as http:
            with pytest.raises(Fault, match="cannot be reached") as refused:
                await http.get(f"http://127.0.0.1:{taken.getsockname()[1]}/")
    async with peer(b"SSH-2.0-OpenSSH_9.6\r\n\r\n") as server, create_client(allow_private=LOOPBACK) as http:
        with pytest.raises(Fault, match="sent an invalid HTTP response") as broken:
            await http.get(server.url)
    assert [fault.value.kind for fault in (refused, broken)] == [Kind.UNAVAILABLE] * 2
    assert isinstance(refused.value.__cause__, httpcore.ConnectError)
