"""Clients that take their time, while a good one is being served."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from time import monotonic

from starlette.types import Receive, Scope, Send

from gateway.edge.request_limits import EdgeLimits, read_body
from tests.gateway.edge.peer import GET, HOST, Peer, Serve, post

LIMITS = EdgeLimits(
    header_timeout=0.6, body_timeout=1.2, min_body_rate=100, body_grace=0.5, write_timeout=0.5, linger=0.3
)
IN_TIME = 1.5
"""A timeout, the tick, and some patience with a busy machine."""


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    body = await read_body(scope, receive, 1 << 20)
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@asynccontextmanager
async def a_good_client(port: int) -> AsyncIterator[None]:
    """One that asks all the while, on one connection, and gets every answer within a second."""
    peer, finished = await Peer.connect(port), asyncio.Event()

    async def keep_asking() -> int:
        answered = 0
        while not finished.is_set():
            async with asyncio.timeout(1):
                assert (await peer.ask(post(b"hello"))).body == b"hello"
            answered += 1
            await asyncio.sleep(0.01)
        return answered

    asking = asyncio.create_task(keep_asking())
    try:
        yield
    finally:
        finished.set()
    assert await asking > 5
    peer.close()


async def test_threat_24_slow_heads_on_many_sockets_are_cut_on_time(serve: Serve) -> None:
    # Two hundred clients of one thread need their time to begin, and to read what they are told.
    served = serve(app, replace(LIMITS, header_timeout=2.0, linger=10))
    head = b"GET / HTTP/1.1\r\n" + HOST + b"X-Slow: " + b"a" * 200

    async def slow_head() -> tuple[int, float]:
        peer = await Peer.connect(served.port)
        started = monotonic()
        # At once: whoever says nothing at all is closed without a word.
        await peer.say(head[:1])
        dripping = asyncio.create_task(peer.drip(head[1:], 0.1))
        answer = await peer.answer()
        took = monotonic() - started
        dripping.cancel()
        peer.close()
        return answer.status, took

    async with a_good_client(served.port):
        cut = await asyncio.gather(*(slow_head() for _ in range(200)))
    assert {status for status, _ in cut} == {408}
    assert min(took for _, took in cut) > 1.9
    assert max(took for _, took in cut) < 2.0 + IN_TIME


async def test_threat_24_a_slow_body_is_cut_by_its_rate(serve: Serve) -> None:
    served = serve(app, replace(LIMITS, body_timeout=60))
    peer = await Peer.connect(served.port)
    started = monotonic()
    async with a_good_client(served.port):
        await peer.say(b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 5000\r\n\r\n")
        dripping = asyncio.create_task(peer.drip(b"a" * 5000, 0.05))
        answer = await peer.answer()
    assert answer.status == 408
    assert answer.error["kind"] == "timeout"
    assert 0.4 < monotonic() - started < 0.5 + IN_TIME
    dripping.cancel()
    assert await peer.until_closed() < LIMITS.linger + IN_TIME


async def test_threat_24_a_body_fast_enough_but_too_long_is_cut_in_all(serve: Serve) -> None:
    served = serve(app, LIMITS)
    peer = await Peer.connect(served.port)
    started = monotonic()
    async with a_good_client(served.port):
        await peer.say(b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 900000\r\n\r\n")
        dripping = asyncio.create_task(peer.drip_parts(b"a" * 100, 9000))
        answer = await peer.answer()
    assert answer.status == 408
    assert 1.1 < monotonic() - started < 1.2 + IN_TIME
    dripping.cancel()
    peer.close()


async def test_threat_24_a_client_that_does_not_read_is_cut(serve: Serve) -> None:
    entered, left = threading.Event(), threading.Event()

    async def endless(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] != "/endless":
            await app(scope, receive, send)
            return
        scope["extensions"]["gatehouse.gone"](left.set)
        entered.set()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while not left.is_set():
            await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})

    served = serve(endless, LIMITS)
    peer = await Peer.connect(served.port)
    peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
    async with a_good_client(served.port):
        await peer.say(GET.replace(b"GET /", b"GET /endless"))
        assert await asyncio.to_thread(entered.wait, 5)
        started = monotonic()
        assert await asyncio.to_thread(left.wait, LIMITS.write_timeout + IN_TIME)
        assert monotonic() - started > 0.4
    peer.close()


async def test_threat_24_a_short_answer_left_unread_does_not_keep_a_closed_connection(serve: Serve) -> None:
    entered = threading.Event()

    async def closing(scope: Scope, receive: Receive, send: Send) -> None:
        # More than the kernel's small buffers take, and less than makes a transport pause.
        headers = [(b"content-length", b"50000"), (b"connection", b"close")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"x" * 50_000})
        entered.set()

    served = serve(closing, LIMITS, send_buffer=4096)
    peer = await Peer.connect(served.port, receive_buffer=4096)
    peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
    await peer.say(GET)
    assert await asyncio.to_thread(entered.wait, 5)
    started = monotonic()
    async with asyncio.timeout(LIMITS.write_timeout + IN_TIME):
        while len(served.census):
            await asyncio.sleep(0.02)
    assert monotonic() - started > 0.4
    peer.close()


async def test_threat_24_a_refused_client_that_goes_on_sending_is_cut(serve: Serve) -> None:
    served = serve(app, LIMITS)
    peer = await Peer.connect(served.port)
    answer = await peer.ask(b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 99999999\r\n\r\n")
    assert answer.status == 413
    sending = asyncio.create_task(peer.drip_parts(b"a" * 1000, 10_000))
    async with asyncio.timeout(LIMITS.linger + IN_TIME):
        await sending
    peer.close()
