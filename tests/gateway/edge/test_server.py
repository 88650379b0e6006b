"""The protocol against real sockets, under both event loops."""

import asyncio
import threading
from statistics import median
from time import monotonic

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from gateway.edge.request_limits import EdgeLimits, read_body
from gateway.errors import Fault
from tests.gateway.edge.peer import GET, HOST, Peer, Serve, post

ROOMY = EdgeLimits(header_timeout=5, body_timeout=5, idle_timeout=5, write_timeout=5)


async def reply(send: Send, body: bytes, status: int = 200) -> None:
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    try:
        await reply(send, await read_body(scope, receive, 1 << 30))
    except Fault:
        await reply(send, b"fault", 500)


async def name_headers(scope: Scope, receive: Receive, send: Send) -> None:
    await read_body(scope, receive, 1 << 30)
    await reply(send, b",".join(name for name, _ in scope["headers"]))


async def test_a_kept_alive_connection_answers_request_after_request(serve: Serve) -> None:
    peer = await Peer.connect(serve(echo, ROOMY).port)
    for body in (b"one", b"two", b""):
        assert (await peer.ask(post(body))).body == body
    peer.close()


async def test_an_answer_does_not_wait_for_an_acknowledgement(serve: Serve) -> None:
    peer = await Peer.connect(serve(echo, ROOMY).port)
    times: list[float] = []
    for _ in range(15):
        started = monotonic()
        await peer.ask(post(b"x"))
        times.append(monotonic() - started)
    assert median(times) < 0.03
    peer.close()


async def test_requests_sent_at_once_are_answered_in_order(serve: Serve) -> None:
    peer = await Peer.connect(serve(echo, ROOMY).port)
    await peer.say(post(b"one") + post(b"two") + post(b"three"))
    assert [(await peer.answer()).body for _ in range(3)] == [b"one", b"two", b"three"]
    peer.close()


async def test_a_silent_connection_is_closed_by_the_header_timeout(serve: Serve) -> None:
    served = serve(echo, EdgeLimits(header_timeout=0.2))
    peer = await Peer.connect(served.port)
    assert 0.1 < await peer.until_closed() < 1.0
    assert not served.census.refusals


async def test_an_idle_connection_is_closed_and_empty_lines_do_not_keep_it(serve: Serve) -> None:
    peer = await Peer.connect(serve(echo, EdgeLimits(idle_timeout=0.3)).port)
    await peer.ask(GET)
    dripping = asyncio.create_task(peer.drip(b"\r\n" * 500, 0.05))
    assert 0.2 < await peer.until_closed() < 1.5
    dripping.cancel()


async def test_a_request_may_take_longer_to_answer_than_any_timeout_of_the_client(serve: Serve) -> None:
    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await read_body(scope, receive, 100)
        await asyncio.sleep(0.6)
        await reply(send, b"done")

    limits = EdgeLimits(header_timeout=0.2, body_timeout=0.2, idle_timeout=0.2, write_timeout=0.2)
    peer = await Peer.connect(serve(slow, limits).port)
    # The second head is unfinished while the first request is still being answered.
    await peer.say(post(b"x") + b"GET / HT")
    assert (await peer.answer()).body == b"done"
    peer.close()


async def test_a_body_the_app_does_not_read_yet_does_not_run_out_of_time(serve: Serve) -> None:
    async def late_reader(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.sleep(0.6)
        await reply(send, b"%d" % len(await read_body(scope, receive, 1 << 30)))

    limits = EdgeLimits(body_timeout=0.3, body_grace=0.1)
    peer = await Peer.connect(serve(late_reader, limits).port)
    assert (await peer.ask(post(b"x" * 2_000_000))).body == b"2000000"
    peer.close()


async def test_a_client_that_waits_for_100_continue_is_not_slow(serve: Serve) -> None:
    async def late_reader(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.sleep(0.5)
        await reply(send, await read_body(scope, receive, 100))

    peer = await Peer.connect(serve(late_reader, EdgeLimits(body_timeout=0.2)).port)
    await peer.say(b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 2\r\nExpect: 100-continue\r\n\r\n")
    assert (await peer.answer()).status == 100
    assert (await peer.ask(b"ok")).body == b"ok"
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
async def test_a_head_that_is_too_large_gets_431(serve: Serve, head: bytes, pieces: int) -> None:
    peer = await Peer.connect(serve(echo, EdgeLimits(max_header_bytes=2000, max_headers=20)).port)
    size = len(head) // pieces + 1
    for start in range(0, len(head), size):
        await peer.say(head[start : start + size])
        await asyncio.sleep(0.005)
    if b"\r\n\r\n" not in head and len(head) > 2000:
        await peer.say(b"a" * 2001)
    answer = await peer.answer()
    assert answer.status == 431
    assert answer.error["kind"] == "too_large"
    assert answer.error["max_bytes"] == 2000
    assert answer.headers["connection"] == "close"
    peer.close()


async def test_a_large_body_in_the_same_read_as_the_head_is_no_large_head(serve: Serve) -> None:
    peer = await Peer.connect(serve(echo, EdgeLimits(max_header_bytes=500)).port)
    for _ in range(2):
        assert len((await peer.ask(post(b"x" * 3000) + post(b"y" * 3000))).body) == 3000
        assert len((await peer.answer()).body) == 3000
    peer.close()


async def test_trailers_do_not_become_headers(serve: Serve) -> None:
    peer = await Peer.connect(serve(name_headers, ROOMY).port)
    head = b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n"
    answer = await peer.ask(head + b"1\r\nx\r\n0\r\nAuthorization: Bearer stolen\r\n\r\n")
    assert answer.body == b"host,transfer-encoding"
    peer.close()


async def test_trailers_without_end_are_cut(serve: Serve) -> None:
    peer = await Peer.connect(serve(name_headers, EdgeLimits(max_header_bytes=2000)).port)
    await peer.say(b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nT: ")
    answering = asyncio.create_task(peer.answer())
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
async def test_an_ill_formed_request_gets_400_and_the_error_object(serve: Serve, request_bytes: bytes) -> None:
    peer = await Peer.connect(serve(echo, ROOMY).port)
    answer = await peer.ask(request_bytes)
    assert answer.status == 400
    assert answer.error["kind"] == "invalid_input"
    assert answer.error["correlation_id"] == answer.headers["x-correlation-id"]
    peer.close()


async def test_connect_is_refused(serve: Serve) -> None:
    peer = await Peer.connect(serve(echo, ROOMY).port)
    answer = await peer.ask(b"CONNECT a:1 HTTP/1.1\r\n" + HOST + b"\r\n")
    assert (answer.status, answer.error["kind"]) == (400, "unsupported")
    peer.close()


async def test_http_1_0_needs_no_host(serve: Serve) -> None:
    peer = await Peer.connect(serve(echo, ROOMY).port)
    assert (await peer.ask(b"GET / HTTP/1.0\r\n\r\n")).status == 200


async def test_garbage_behind_a_request_cannot_forge_its_answer(serve: Serve) -> None:
    entered = threading.Event()

    async def hang(scope: Scope, receive: Receive, send: Send) -> None:
        await read_body(scope, receive, 100)
        entered.set()
        await receive()

    peer = await Peer.connect(serve(hang, ROOMY).port)
    await peer.say(post(b"x"))
    await asyncio.to_thread(entered.wait, 5)
    await peer.say(b"\x00 garbage\r\n\r\n")
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        await peer.answer()


async def test_an_announced_body_over_the_limit_gets_413_before_it_is_sent(serve: Serve) -> None:
    peer = await Peer.connect(serve(echo, EdgeLimits(max_body_bytes=1000)).port)
    answer = await peer.ask(b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 1001\r\nExpect: 100-continue\r\n\r\n")
    assert answer.status == 413
    assert (answer.error["payload_bytes"], answer.error["max_bytes"]) == (1001, 1000)
    peer.close()


async def test_an_ordinary_client_reads_the_413_while_it_is_still_sending(serve: Serve) -> None:
    url = f"http://127.0.0.1:{serve(echo, ROOMY).port}/"
    async with httpx.AsyncClient(verify=False, trust_env=False) as client:
        answer = await client.post(url, content=b"x" * (5 << 20))
    assert answer.status_code == 413
    assert answer.json()["error"]["max_bytes"] == 4 << 20


async def test_a_chunked_body_over_the_limit_gets_413_on_the_way(serve: Serve) -> None:
    peer = await Peer.connect(serve(echo, EdgeLimits(max_body_bytes=1000)).port)
    await peer.say(b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n")
    await peer.say(b"258\r\n" + b"x" * 600 + b"\r\n")
    answer = await peer.ask(b"258\r\n" + b"x" * 600 + b"\r\n")
    assert answer.status == 413
    assert answer.error["max_bytes"] == 1000
    peer.close()


async def test_too_many_connections_get_503_and_a_place_is_free_again(serve: Serve) -> None:
    served = serve(echo, EdgeLimits(max_connections_per_address=2, linger=0.2))
    first, second = [await Peer.connect(served.port) for _ in range(2)]
    await first.ask(GET)
    await second.ask(GET)
    third = await Peer.connect(served.port)
    answer = await third.answer()
    assert (answer.status, answer.error["kind"], answer.headers["retry-after"]) == (503, "unavailable", "1")
    assert await third.reader.read() == b""
    first.close()
    # The server hears of the closing in its own time.
    async with asyncio.timeout(5):
        while True:
            again = await Peer.connect(served.port)
            try:
                if (await again.ask(GET)).status == 200:
                    break
            except (ConnectionError, asyncio.IncompleteReadError):
                continue
    assert served.census.refusals[503] >= 1


async def test_the_app_hears_at_once_that_its_client_is_gone(serve: Serve) -> None:
    entered, told, late = threading.Event(), threading.Event(), threading.Event()

    async def hang(scope: Scope, receive: Receive, send: Send) -> None:
        register = scope["extensions"]["gatehouse.gone"]
        left = asyncio.Event()
        register(told.set)
        register(left.set)
        entered.set()
        await left.wait()
        register(late.set)

    peer = await Peer.connect(serve(hang, ROOMY).port)
    await peer.say(GET)
    assert await asyncio.to_thread(entered.wait, 5)
    assert not told.is_set()
    peer.close()
    assert await asyncio.to_thread(told.wait, 5)
    assert await asyncio.to_thread(late.wait, 5)


async def test_the_app_hears_nothing_once_it_has_answered(serve: Serve) -> None:
    told: list[str] = []

    async def answers(scope: Scope, receive: Receive, send: Send) -> None:
        register = scope["extensions"]["gatehouse.gone"]
        register(lambda: told.append("before"))
        await reply(send, b"ok")
        register(lambda: told.append("after"))

    served = serve(answers, ROOMY)
    peer = await Peer.connect(served.port)
    await peer.ask(GET)
    await peer.ask(GET)
    peer.close()
    await peer.writer.wait_closed()
    async with asyncio.timeout(5):
        while len(served.census):
            await asyncio.sleep(0.01)
    assert told == []


async def test_an_upgraded_connection_still_counts_until_it_closes(serve: Serve) -> None:
    class Upgraded(asyncio.Protocol):
        def __init__(self, **_given: object) -> None: ...

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = transport

        def data_received(self, data: bytes) -> None:
            self.transport.write(b"HTTP/1.1 101 Switching Protocols\r\n\r\n")  # type: ignore[attr-defined]

    served = serve(echo, EdgeLimits(header_timeout=0.2, idle_timeout=0.2), ws=Upgraded)
    peer = await Peer.connect(served.port)
    head = b"GET / HTTP/1.1\r\n" + HOST + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    assert (await peer.ask(head)).status == 101
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(peer.until_closed(), 0.5)
    assert len(served.census) == 1
    peer.close()
    async with asyncio.timeout(5):
        while len(served.census):
            await asyncio.sleep(0.01)


async def test_an_upgrade_nobody_offers_is_answered_as_a_plain_request(serve: Serve) -> None:
    peer = await Peer.connect(serve(echo, ROOMY).port)
    upgrade = (b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAEAAEAA")
    whole = post(b"hello", *upgrade)
    assert (await peer.ask(whole)).body == b"hello"
    # The same in two pieces, with another request behind it.
    await peer.say(whole[:-3])
    await peer.say(whole[-3:] + post(b"next"))
    assert [(await peer.answer()).body for _ in range(2)] == [b"hello", b"next"]
    answer = await peer.ask(post(b"last", b"Connection: close, Upgrade", b"Upgrade: h2c"))
    assert (answer.body, answer.headers["connection"]) == (b"last", "close")


async def test_a_declined_upgrade_is_bounded_like_any_request(serve: Serve) -> None:
    served = serve(echo, EdgeLimits(max_body_bytes=1000))
    for headers, status in ((b"Content-Length: 1001\r\n", 413), (b"Host: b\r\n", 400)):
        peer = await Peer.connect(served.port)
        head = b"POST / HTTP/1.1\r\n" + HOST + headers + b"Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
        assert (await peer.ask(head)).status == status
        peer.close()
