"""How much the client lets in, and for how long it waits."""

import asyncio
import gzip
import socket
import tracemalloc

import httpcore
import httpx
import pytest

from gateway.errors import Fault, Kind
from gateway.outbound import client

from .peers import LOOPBACK, OK, Reply, peer


async def _endless(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"4000\r\n" + b"x" * 0x4000 + b"\r\n")
        await writer.drain()


async def test_threat_33_an_endless_body_is_cut_off_and_its_connection_closed() -> None:
    async with peer(_endless) as there, client(allow_private=LOOPBACK, max_bytes=100_000) as http:
        with pytest.raises(Fault) as caught:
            await http.get(there.url)
        assert caught.value.kind is Kind.TOO_LARGE
        assert caught.value.details == {"max_bytes": 100_000}
        await asyncio.wait_for(there.gone.wait(), 5)


async def test_a_streamed_body_is_capped_too() -> None:
    seen = 0

    async def read(http: httpx.AsyncClient, url: str) -> None:
        nonlocal seen
        async with http.stream("GET", url) as response:
            async for chunk in response.aiter_bytes():
                seen += len(chunk)

    async with peer(_endless) as there, client(allow_private=LOOPBACK, max_bytes=100_000) as http:
        with pytest.raises(Fault) as caught:
            await read(http, there.url)
    assert caught.value.kind is Kind.TOO_LARGE
    assert 0 < seen <= 100_000


BOMB = gzip.compress(bytes(32 * 1024 * 1024), compresslevel=1)


async def test_a_body_of_exactly_the_cap_is_let_in() -> None:
    async with peer() as there, client(allow_private=LOOPBACK, max_bytes=2) as http:
        assert (await http.get(there.url)).content == b"ok"


@pytest.mark.parametrize("encoding", [b"gzip", b"GZip", b"deflate", b"identity, gzip", b"br", b"unheard-of"])
async def test_threat_33_a_compressed_answer_is_refused_before_it_grows(encoding: bytes) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: %s\r\nContent-Length: %d\r\n\r\n" % (encoding, len(BOMB))
    async with peer(head + BOMB) as there, client(allow_private=LOOPBACK) as http:
        tracemalloc.start()
        try:
            with pytest.raises(Fault, match="compressed") as caught:
                await http.get(there.url)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert caught.value.kind is Kind.DENIED
    assert peak < 4 * 1024 * 1024


async def test_refused_answers_do_not_use_up_the_connections() -> None:
    reply = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 9\r\n\r\n"
    async with peer(reply) as there, client(allow_private=LOOPBACK, timeout=5) as http:
        for _ in range(20):  # more than the pool has connections
            with pytest.raises(Fault, match="compressed"):
                await http.get(there.url)
        there.reply = OK
        assert (await http.get(there.url)).text == "ok"


async def test_an_answer_that_says_identity_is_let_in() -> None:
    reply = b"HTTP/1.1 200 OK\r\nContent-Encoding: identity\r\nContent-Length: 2\r\n\r\nok"
    async with peer(reply) as there, client(allow_private=LOOPBACK) as http:
        assert (await http.get(there.url)).text == "ok"


async def _silent(writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def _dripping(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.01)


async def _informing(writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"HTTP/1.1 102 Processing\r\n\r\n")
        await writer.drain()
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("reply", [_silent, _dripping, _informing])
async def test_the_whole_answer_must_come_in_time_however_it_dawdles(reply: Reply) -> None:
    async with peer(reply) as there, client(allow_private=LOOPBACK, timeout=0.3) as http:
        async with asyncio.timeout(5):
            with pytest.raises(Fault, match="did not answer in time") as caught:
                await http.get(there.url, timeout=None)
    assert caught.value.kind is Kind.TIMEOUT


async def test_a_slow_resolver_counts_against_the_time() -> None:
    async def stuck(host: str, port: int) -> list[str]:
        await asyncio.Event().wait()
        return []

    async with client(resolver=stuck, timeout=0.1) as http:
        with pytest.raises(Fault) as caught:
            await http.get("https://slow.example/")
    assert caught.value.kind is Kind.TIMEOUT


async def test_a_client_is_as_good_as_new_after_it_gave_up() -> None:
    async with peer(_dripping) as there, client(allow_private=LOOPBACK, timeout=0.05) as http:
        for _ in range(20):  # more than the pool has connections
            with pytest.raises(Fault, match="did not answer in time"):
                await http.get(there.url)
        there.reply = OK
        assert (await http.get(there.url)).text == "ok"


async def test_a_closed_port_and_a_broken_answer_are_unavailable() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        async with client(allow_private=LOOPBACK) as http:
            with pytest.raises(Fault, match="cannot be reached") as refused:
                await http.get(f"http://127.0.0.1:{taken.getsockname()[1]}/")
    async with peer(b"SSH-2.0-OpenSSH_9.6\r\n\r\n") as there, client(allow_private=LOOPBACK) as http:
        with pytest.raises(Fault, match="broke the rules") as broken:
            await http.get(there.url)
    assert [fault.value.kind for fault in (refused, broken)] == [Kind.UNAVAILABLE] * 2
    assert isinstance(refused.value.__cause__, httpcore.ConnectError)
