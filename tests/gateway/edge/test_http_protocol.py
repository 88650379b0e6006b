"""The HTTP protocol class with real sockets, with uvloop and asyncio."""

import asyncio
import json
import threading
from statistics import median
from time import monotonic

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from gateway.edge.request_parsing import EdgeLimits, fold_headers, read_body
from gateway.errors import Fault
from tests.gateway.edge.peer import GET, HOST, Peer, Serve, post

LONG_TIMEOUTS = EdgeLimits(header_timeout=5, body_timeout=5, idle_timeout=5, write_timeout=5)


async def reply(send: Send, body: bytes, status: int = 200) -> None:
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    try:
        await reply(send, await read_body(fold_headers(scope["headers"]), receive, 1 << 30))
    except Fault:
        await reply(send, b"fault", 500)


async def name_headers(scope: Scope, receive: Receive, send: Send) -> None:
    await read_body(fold_headers(scope["headers"]), receive, 1 << 30)
    await reply(send, b",".join(name for name, _ in scope["headers"]))


async def test_keep_alive_connection_serves_several_requests(serve: Serve) -> None:
    peer = await Peer.connect(serve(echo, LONG_TIMEOUTS).port)
    for body in (b"one", b"two", b""):
        assert (await peer.request(post(body))).body == body
    peer.close()


async def test_response_is_sent_without_waiting_for_tcp_acknowledgement(serve: Serve) -> None:
    peer = await Peer.connect(serve(echo, LONG_TIMEOUTS).port)
    times: list[float] = []
    for _ in range(15):
        started = monotonic()
        await peer.request(post(b"x"))
        times.append(monotonic() - started)
    assert median(times) < 0.03
    peer.close()


async def test_pipelined_requests_are_answered_in_order(serve: Serve) -> None:
    peer = await Peer.connect(serve(echo, LONG_TIMEOUTS).port)
    await peer.send_bytes(post(b"one") + post(b"two") + post(b"three"))
    assert [(await peer.read_response()).body for _ in range(3)] == [b"one", b"two", b"three"]
    peer.close()


async def test_silent_connection_is_closed_after_the_header_timeout(serve: Serve) -> None:
    server = serve(echo, EdgeLimits(header_timeout=0.2))
    peer = await Peer.connect(server.port)
    assert 0.1 < await peer.until_closed() < 1.0
    assert not server.connections.refusals


async def test_idle_connection_is_closed_even_if_it_sends_empty_lines(serve: Serve) -> None:
    peer = await Peer.connect(serve(echo, EdgeLimits(idle_timeout=0.3)).port)
    await peer.request(GET)
    dripping = asyncio.create_task(peer.drip(b"\r\n" * 500, 0.05))
    assert 0.2 < await peer.until_closed() < 1.5
    dripping.cancel()


async def test_response_may_take_longer_than_the_client_timeouts(serve: Serve) -> None:
    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await read_body(fold_headers(scope["headers"]), receive, 100)
        await asyncio.sleep(0.6)
        await reply(send, b"done")

    limits = EdgeLimits(header_timeout=0.2, body_timeout=0.2, idle_timeout=0.2, write_timeout=0.2)
    peer = await Peer.connect(serve(slow, limits).port)
    # The second head is incomplete while the first request is still in progress.
    await peer.send_bytes(post(b"x") + b"GET / HT")
    assert (await peer.read_response()).body == b"done"
    peer.close()


async def test_body_timeout_does_not_run_while_the_app_does_not_read(serve: Serve) -> None:
    async def late_reader(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.sleep(0.6)
        await reply(send, b"%d" % len(await read_body(fold_headers(scope["headers"]), receive, 1 << 30)))

    limits = EdgeLimits(body_timeout=0.3, body_grace=0.1)
    peer = await Peer.connect(serve(late_reader, limits).port)
    assert (await peer.request(post(b"x" * 2_000_000))).body == b"2000000"
    peer.close()


async def test_body_timeout_does_not_run_before_100_continue(serve: Serve) -> None:
    async def late_reader(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.sleep(0.5)
        await reply(send, await read_body(fold_headers(scope["headers"]), receive, 100))

    peer = await Peer.connect(serve(late_reader, EdgeLimits(body_timeout=0.2)).port)
    await peer.send_bytes(b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 2\r\nExpect: 100-continue\r\n\r\n")
    assert (await peer.read_response()).status == 100
    assert (await peer.request(b"ok")).body == b"ok"
    peer.close()


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\n" + HOST + b"X: " + b"a" * 5000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + HOST + b"X: " + b"a" * 5000,
        b"GET /" + b"a" * 5000 + b" HTTP/1.1\r\n" + HOST + b"\r\n",
        b"GET / HTTP/1.1\r\n" + HOST + b"X: 1\r\n" * 21 + b"\r\n",
        b"GET / HTTP/1.1\r\n" + HOST + b"X: 1\r\n" * 21,
    ],
    ids=["long", "long, unfinished", "long path", "many", "many, unfinished"],
)
@pytest.mark.parametrize("pieces", [1, 7])
async def test_request_head_above_the_limit_gets_431(serve: Serve, head: bytes, pieces: int) -> None:
    peer = await Peer.connect(serve(echo, EdgeLimits(max_header_bytes=2000, max_headers=20)).port)
    size = len(head) // pieces + 1
    for start in range(0, len(head), size):
        await peer.send_bytes(head[start : start + size])
        await asyncio.sleep(0.005)
    if b"\r\n\r\n" not in head and len(head) > 2000:
        await peer.send_bytes(b"a" * 2001)
    response = await peer.read_response()
    assert response.status == 431
    assert response.error["kind"] == "too_large"
    assert response.error["max_bytes"] == 2000
    assert response.headers["connection"] == "close"
    peer.close()


async def test_large_body_received_with_the_head_does_not_count_as_head(serve: Serve) -> None:
    peer = await Peer.connect(serve(echo, EdgeLimits(max_header_bytes=500)).port)
    for _ in range(2):
        assert len((await peer.request(post(b"x" * 3000) + post(b"y" * 3000))).body) == 3000
        assert len((await peer.read_response()).body) == 3000
    peer.close()


async def test_trailers_do_not_become_headers(serve: Serve) -> None:
    peer = await Peer.connect(serve(name_headers, LONG_TIMEOUTS).port)
    head = b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n"
    response = await peer.request(head + b"1\r\nx\r\n0\r\nAuthorization: Bearer stolen\r\n\r\n")
    assert response.body == b"host,transfer-encoding"
    peer.close()


async def test_endless_trailers_are_rejected(serve: Serve) -> None:
    peer = await Peer.connect(serve(name_headers, EdgeLimits(max_header_bytes=2000)).port)
    await peer.send_bytes(b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nT: ")
    answering = asyncio.create_task(peer.read_response())
    dripping = asyncio.create_task(peer.drip_parts(b"a" * 1000, 20))
    assert (await answering).status == 431
    dripping.cancel()
    peer.close()


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.0\r\nHost: a\r\nhost: b\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + HOST + b"X: a\r\n folded\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + HOST + b"X: a\x00b\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + HOST + b"X : a\r\n\r\n",
        b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nx",
        b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: -1\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\n" + HOST + b"\r\n",
        b"\x16\x03\x01\x02\x00 this is TLS",
    ],
)
async def test_malformed_request_gets_400_with_the_error_object(serve: Serve, request_bytes: bytes) -> None:
    peer = await Peer.connect(serve(echo, LONG_TIMEOUTS).port)
    response = await peer.request(request_bytes)
    assert response.status == 400
    assert response.error["kind"] == "invalid_input"
    assert response.error["correlation_id"] == response.headers["x-correlation-id"]
    peer.close()


async def test_connect_method_is_rejected(serve: Serve) -> None:
    peer = await Peer.connect(serve(echo, LONG_TIMEOUTS).port)
    response = await peer.request(b"CONNECT a:1 HTTP/1.1\r\n" + HOST + b"\r\n")
    assert (response.status, response.error["kind"]) == (400, "unsupported")
    peer.close()


async def test_http_1_0_needs_no_host(serve: Serve) -> None:
    peer = await Peer.connect(serve(echo, LONG_TIMEOUTS).port)
    assert (await peer.request(b"GET / HTTP/1.0\r\n\r\n")).status == 200


async def test_garbage_after_a_request_does_not_affect_its_response(serve: Serve) -> None:
    entered = threading.Event()

    async def hang(scope: Scope, receive: Receive, send: Send) -> None:
        await read_body(fold_headers(scope["headers"]), receive, 100)
        entered.set()
        await receive()

    peer = await Peer.connect(serve(hang, LONG_TIMEOUTS).port)
    await peer.send_bytes(post(b"x"))
    await asyncio.to_thread(entered.wait, 5)
    await peer.send_bytes(b"\x00 garbage\r\n\r\n")
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        await peer.read_response()


async def test_content_length_above_the_limit_gets_413_before_the_body(serve: Serve) -> None:
    peer = await Peer.connect(serve(echo, EdgeLimits(max_body_bytes=1000)).port)
    response = await peer.request(
        b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 1001\r\nExpect: 100-continue\r\n\r\n"
    )
    assert response.status == 413
    assert (response.error["payload_bytes"], response.error["max_bytes"]) == (1001, 1000)
    peer.close()


async def test_413_of_an_mcp_endpoint_is_a_json_rpc_error_without_id(serve: Serve) -> None:
    peer = await Peer.connect(serve(echo, EdgeLimits(max_body_bytes=1000)).port)
    response = await peer.request(b"POST /mcp HTTP/1.1\r\n" + HOST + b"Content-Length: 1001\r\n\r\n")
    body = json.loads(response.body)
    assert (response.status, body["jsonrpc"], body["id"], body["error"]["code"]) == (413, "2.0", None, -32602)
    assert (body["error"]["data"]["kind"], body["error"]["data"]["max_bytes"]) == ("too_large", 1000)
    peer.close()


async def test_client_that_is_still_sending_receives_the_413(serve: Serve) -> None:
    url = f"http://127.0.0.1:{serve(echo, LONG_TIMEOUTS).port}/"
    async with httpx.AsyncClient(verify=False, trust_env=False) as client:
        response = await client.post(url, content=b"x" * (5 << 20))
    assert response.status_code == 413
    assert response.json()["error"]["max_bytes"] == 4 << 20


async def test_chunked_body_above_the_limit_gets_413_during_transfer(serve: Serve) -> None:
    peer = await Peer.connect(serve(echo, EdgeLimits(max_body_bytes=1000)).port)
    await peer.send_bytes(b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n")
    await peer.send_bytes(b"258\r\n" + b"x" * 600 + b"\r\n")
    response = await peer.request(b"258\r\n" + b"x" * 600 + b"\r\n")
    assert response.status == 413
    assert response.error["max_bytes"] == 1000
    peer.close()


async def test_connections_above_the_limit_get_503_until_one_closes(serve: Serve) -> None:
    server = serve(echo, EdgeLimits(max_connections_per_address=2, linger=0.2))
    first, second = [await Peer.connect(server.port) for _ in range(2)]
    await first.request(GET)
    await second.request(GET)
    third = await Peer.connect(server.port)
    response = await third.read_response()
    assert (response.status, response.error["kind"], response.headers["retry-after"]) == (503, "unavailable", "1")
    assert await third.reader.read() == b""
    first.close()
    # The server notices the closed connection after a while.
    async with asyncio.timeout(5):
        while True:
            again = await Peer.connect(server.port)
            try:
                if (await again.request(GET)).status == 200:
                    break
            except (ConnectionError, asyncio.IncompleteReadError):
                continue
    assert server.connections.refusals[503] >= 1


async def test_disconnect_callbacks_run_when_the_client_disconnects(serve: Serve) -> None:
    entered, notified, late = threading.Event(), threading.Event(), threading.Event()

    async def hang(scope: Scope, receive: Receive, send: Send) -> None:
        register = scope["extensions"]["gatehouse.on_disconnect"]
        left = asyncio.Event()
        register(notified.set)
        register(left.set)
        entered.set()
        await left.wait()
        register(late.set)

    peer = await Peer.connect(serve(hang, LONG_TIMEOUTS).port)
    await peer.send_bytes(GET)
    assert await asyncio.to_thread(entered.wait, 5)
    assert not notified.is_set()
    peer.close()
    assert await asyncio.to_thread(notified.wait, 5)
    assert await asyncio.to_thread(late.wait, 5)


async def test_disconnect_callbacks_do_not_run_after_the_response(serve: Serve) -> None:
    notified: list[str] = []

    async def answers(scope: Scope, receive: Receive, send: Send) -> None:
        register = scope["extensions"]["gatehouse.on_disconnect"]
        register(lambda: notified.append("before"))
        await reply(send, b"ok")
        register(lambda: notified.append("after"))

    server = serve(answers, LONG_TIMEOUTS)
    peer = await Peer.connect(server.port)
    await peer.request(GET)
    await peer.request(GET)
    peer.close()
    await peer.writer.wait_closed()
    async with asyncio.timeout(5):
        while len(server.connections):
            await asyncio.sleep(0.01)
    assert notified == []


async def test_upgraded_connection_counts_until_it_closes(serve: Serve) -> None:
    class Upgraded(asyncio.Protocol):
        def __init__(self, **_kwargs: object) -> None: ...

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = transport

        def data_received(self, data: bytes) -> None:
            self.transport.write(b"HTTP/1.1 101 Switching Protocols\r\n\r\n")  # type: ignore[attr-defined]

    server = serve(echo, EdgeLimits(header_timeout=0.2, idle_timeout=0.2), ws=Upgraded)
    peer = await Peer.connect(server.port)
    head = b"GET / HTTP/1.1\r\n" + HOST + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    assert (await peer.request(head)).status == 101
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(peer.until_closed(), 0.5)
    assert len(server.connections) == 1
    peer.close()
    async with asyncio.timeout(5):
        while len(server.connections):
            await asyncio.sleep(0.01)


async def test_unsupported_upgrade_is_served_as_a_plain_request(serve: Serve) -> None:
    peer = await Peer.connect(serve(echo, LONG_TIMEOUTS).port)
    upgrade = (b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAEAAEAA")
    whole = post(b"hello", *upgrade)
    assert (await peer.request(whole)).body == b"hello"
    # The same request in two chunks, followed by another request.
    await peer.send_bytes(whole[:-3])
    await peer.send_bytes(whole[-3:] + post(b"next"))
    assert [(await peer.read_response()).body for _ in range(2)] == [b"hello", b"next"]
    response = await peer.request(post(b"last", b"Connection: close, Upgrade", b"Upgrade: h2c"))
    assert (response.body, response.headers["connection"]) == (b"last", "close")


async def test_limits_apply_to_a_request_with_declined_upgrade(serve: Serve) -> None:
    server = serve(echo, EdgeLimits(max_body_bytes=1000))
    for headers, status in ((b"Content-Length: 1001\r\n", 413), (b"Host: b\r\n", 400)):
        peer = await Peer.connect(server.port)
        head = b"POST / HTTP/1.1\r\n" + HOST + headers + b"Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
        assert (await peer.request(head)).status == status
        peer.close()


async def test_many_declined_upgrades_in_one_read_are_all_answered(serve: Serve) -> None:
    peer = await Peer.connect(serve(echo, LONG_TIMEOUTS).port)
    whole = post(b"x", b"Connection: Upgrade", b"Upgrade: h2c")
    await peer.send_bytes(whole * 500)
    async with asyncio.timeout(20):
        assert [(await peer.read_response()).body for _ in range(500)] == [b"x"] * 500
    peer.close()
