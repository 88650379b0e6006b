"""Timeouts of slow clients, while a well-behaved client is being served."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from time import monotonic

from starlette.types import Receive, Scope, Send

from gateway.edge.request_parsing import EdgeLimits, fold_headers, read_body
from tests.gateway.edge.peer import GET, HOST, Peer, Serve, post

LIMITS = EdgeLimits(
    header_timeout=0.6, body_timeout=1.2, min_body_rate=100, body_grace=0.5, write_timeout=0.5, linger=0.3
)
IN_TIME = 1.5
"""Tolerance in seconds for the timer tick and a busy machine."""


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    body = await read_body(fold_headers(scope["headers"]), receive, 1 << 20)
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@asynccontextmanager
async def well_behaved_client(port: int) -> AsyncIterator[None]:
    """Sends requests on one connection throughout, and gets every response within a second."""
    peer, finished = await Peer.connect(port), asyncio.Event()

    async def keep_requesting() -> int:
        responses = 0
        while not finished.is_set():
            async with asyncio.timeout(1):
                assert (await peer.request(post(b"hello"))).body == b"hello"
            responses += 1
            await asyncio.sleep(0.01)
        return responses

    requesting = asyncio.create_task(keep_requesting())
    try:
        yield
    finally:
        finished.set()
    assert await requesting > 5
    peer.close()


async def test_threat_24_slow_heads_on_many_connections_time_out(serve: Serve) -> None:
    # Two hundred clients in one thread need time to connect and to read their responses.
    server = serve(app, replace(LIMITS, header_timeout=2.0, linger=10))
    head = b"GET / HTTP/1.1\r\n" + HOST + b"X-Slow: " + b"a" * 200

    async def slow_head() -> tuple[int, float]:
        peer = await Peer.connect(server.port)
        started = monotonic()
        # Send the first byte immediately: a silent connection is closed without a response.
        await peer.send_bytes(head[:1])
        dripping = asyncio.create_task(peer.drip(head[1:], 0.1))
        response = await peer.read_response()
        duration = monotonic() - started
        dripping.cancel()
        peer.close()
        return response.status, duration

    async with well_behaved_client(server.port):
        results = await asyncio.gather(*(slow_head() for _ in range(200)))
    assert {status for status, _ in results} == {408}
    assert min(duration for _, duration in results) > 1.9
    assert max(duration for _, duration in results) < 2.0 + IN_TIME


async def test_threat_24_body_below_the_minimum_rate_times_out(serve: Serve) -> None:
    server = serve(app, replace(LIMITS, body_timeout=60))
    peer = await Peer.connect(server.port)
    started = monotonic()
    async with well_behaved_client(server.port):
        await peer.send_bytes(b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 5000\r\n\r\n")
        dripping = asyncio.create_task(peer.drip(b"a" * 5000, 0.05))
        response = await peer.read_response()
    assert response.status == 408
    assert response.error["kind"] == "timeout"
    assert 0.4 < monotonic() - started < 0.5 + IN_TIME
    dripping.cancel()
    assert await peer.until_closed() < LIMITS.linger + IN_TIME


async def test_threat_24_body_above_the_minimum_rate_times_out_in_total(serve: Serve) -> None:
    server = serve(app, LIMITS)
    peer = await Peer.connect(server.port)
    started = monotonic()
    async with well_behaved_client(server.port):
        await peer.send_bytes(b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 900000\r\n\r\n")
        dripping = asyncio.create_task(peer.drip_parts(b"a" * 100, 9000))
        response = await peer.read_response()
    assert response.status == 408
    assert 1.1 < monotonic() - started < 1.2 + IN_TIME
    dripping.cancel()
    peer.close()


async def test_threat_24_client_that_does_not_read_is_disconnected(serve: Serve) -> None:
    entered, left = threading.Event(), threading.Event()

    async def endless(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] != "/endless":
            await app(scope, receive, send)
            return
        scope["extensions"]["gatehouse.on_disconnect"](left.set)
        entered.set()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while not left.is_set():
            await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})

    server = serve(endless, LIMITS)
    peer = await Peer.connect(server.port)
    peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
    async with well_behaved_client(server.port):
        await peer.send_bytes(GET.replace(b"GET /", b"GET /endless"))
        assert await asyncio.to_thread(entered.wait, 5)
        started = monotonic()
        assert await asyncio.to_thread(left.wait, LIMITS.write_timeout + IN_TIME)
        assert monotonic() - started > 0.4
    peer.close()


async def test_threat_24_unread_short_response_does_not_keep_a_closing_connection_open(serve: Serve) -> None:
    entered = threading.Event()

    async def closing(scope: Scope, receive: Receive, send: Send) -> None:
        # More than the kernel buffers hold, and less than pauses the transport.
        headers = [(b"content-length", b"50000"), (b"connection", b"close")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"x" * 50_000})
        entered.set()

    server = serve(closing, LIMITS, send_buffer=4096)
    peer = await Peer.connect(server.port, receive_buffer=4096)
    peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
    await peer.send_bytes(GET)
    assert await asyncio.to_thread(entered.wait, 5)
    started = monotonic()
    async with asyncio.timeout(LIMITS.write_timeout + IN_TIME):
        while len(server.connections):
            await asyncio.sleep(0.02)
    assert monotonic() - started > 0.4
    peer.close()


async def test_threat_24_rejected_client_that_continues_sending_is_disconnected(serve: Serve) -> None:
    server = serve(app, LIMITS)
    peer = await Peer.connect(server.port)
    response = await peer.request(b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 99999999\r\n\r\n")
    assert response.status == 413
    sending = asyncio.create_task(peer.drip_parts(b"a" * 1000, 10_000))
    async with asyncio.timeout(LIMITS.linger + IN_TIME):
        await sending
    peer.close()
