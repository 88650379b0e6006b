"""One request and its response: what is released, and what the client gets after a failure."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import cast

import pytest

from gateway.edge.http_exchange import ExchangeConnection, HttpExchange


class RecordingTransport:
    """A transport that records the bytes written to it."""

    def __init__(self) -> None:
        self.written = b""
        self.closed = False

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed


class Connection:
    """The part of a connection that an exchange uses."""

    server_state = SimpleNamespace(default_headers=())
    client = ("127.0.0.1", 1)

    def __init__(self) -> None:
        self.transport = RecordingTransport()
        self.flow = SimpleNamespace(write_paused=False, resume_reading=lambda: None, pause_reading=self.pause_reading)
        self.paused = False
        self.completed: list[HttpExchange] = []
        self.finished: list[HttpExchange] = []

    def pause_reading(self) -> None:
        self.paused = True

    def exchange_complete(self, exchange: HttpExchange) -> None:
        self.completed.append(exchange)

    def exchange_finished(self, exchange: HttpExchange) -> None:
        self.finished.append(exchange)


Serve = Callable[[HttpExchange], Awaitable[None]]


def make_exchange(
    method: str = "POST", version: str = "1.1", headers: dict[str, str] | None = None
) -> tuple[HttpExchange, Connection]:
    connection = Connection()
    exchange = HttpExchange(
        cast("ExchangeConnection", connection), method, b"/mcp", version, headers or {}, [], None, version == "1.1"
    )
    return exchange, connection


async def test_body_is_released_with_the_response() -> None:
    exchange, connection = make_exchange()
    exchange.append_body(b"x" * 1000)
    await exchange.send(401, [], b"no")
    assert connection.transport.written.endswith(b"\r\n\r\nno")
    assert not exchange.body
    assert connection.completed == [exchange]


async def test_received_body_is_offered_only_when_complete_and_not_encoded() -> None:
    exchange, _ = make_exchange()
    exchange.append_body(b"one ")
    exchange.append_body(b"two ")
    exchange.append_body(b"three")
    assert exchange.received_body is None
    exchange.body_received = True
    exchange.wake()
    assert exchange.received_body == b"one two three"
    encoded, _ = make_exchange(headers={"content-encoding": "gzip"})
    encoded.body_received = True
    assert encoded.received_body is None


async def test_receive_returns_the_body_in_pieces_and_then_the_disconnect() -> None:
    exchange, _ = make_exchange()
    exchange.append_body(b"one")
    assert await exchange.receive() == {"type": "http.request", "body": b"one", "more_body": True}
    waiting = asyncio.ensure_future(exchange.receive())
    await asyncio.sleep(0)
    exchange.append_body(b"two")
    exchange.body_received = True
    exchange.wake()
    assert await waiting == {"type": "http.request", "body": b"two", "more_body": False}
    waiting = asyncio.ensure_future(exchange.receive())
    await asyncio.sleep(0)
    assert not waiting.done()
    exchange.disconnect()
    assert await waiting == {"type": "http.disconnect"}


async def test_reading_pauses_while_the_app_does_not_consume_the_body() -> None:
    exchange, connection = make_exchange()
    exchange.task = asyncio.ensure_future(asyncio.sleep(0))
    exchange.append_body(b"x" * 60_000)
    assert not connection.paused
    exchange.append_body(b"x" * 10_000)
    assert connection.paused
    await exchange.task


async def test_expected_continue_is_sent_when_the_body_is_read() -> None:
    exchange, connection = make_exchange()
    exchange.awaits_continue = True
    waiting = asyncio.ensure_future(exchange.receive())
    assert connection.transport.written == b""
    await asyncio.sleep(0)
    assert connection.transport.written == b"HTTP/1.1 100 Continue\r\n\r\n"
    exchange.append_body(b"x")
    await waiting


async def test_expected_continue_is_omitted_when_the_body_has_arrived() -> None:
    exchange, connection = make_exchange()
    exchange.awaits_continue = True
    exchange.append_body(b"x")
    await exchange.receive()
    assert connection.transport.written == b""


async def test_streamed_response_is_chunked_for_http_1_1_only() -> None:
    written: dict[str, bytes] = {}
    for version in ("1.1", "1.0"):
        exchange, connection = make_exchange("GET", version)
        await exchange.open([(b"content-type", b"text/event-stream")])
        await exchange.write(b"data")
        await exchange.close()
        written[version] = connection.transport.written
        assert connection.transport.closed is (version == "1.0")
    assert written["1.1"].endswith(b"transfer-encoding: chunked\r\n\r\n4\r\ndata\r\n0\r\n\r\n")
    assert written["1.0"].endswith(b"connection: close\r\n\r\ndata")


async def test_response_to_head_has_a_length_and_no_body() -> None:
    exchange, connection = make_exchange("HEAD")
    await exchange.send(200, [], b"body")
    assert connection.transport.written == b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n"


async def run(serve: Serve) -> Connection:
    exchange, connection = make_exchange()
    await exchange.run(serve)
    assert connection.finished == [exchange]
    return connection


async def test_unexpected_exception_is_answered_with_500() -> None:
    async def fail(exchange: HttpExchange) -> None:
        raise ZeroDivisionError

    transport = (await run(fail)).transport
    assert transport.written.startswith(b"HTTP/1.1 500 ")
    assert b'"kind":"internal"' in transport.written
    assert b"ZeroDivision" not in transport.written
    assert transport.closed


async def test_cancelled_request_is_answered_with_retryable_503() -> None:
    async def cancel(exchange: HttpExchange) -> None:
        raise asyncio.CancelledError

    exchange, connection = make_exchange()
    with pytest.raises(asyncio.CancelledError):
        await exchange.run(cancel)
    assert connection.transport.written.startswith(b"HTTP/1.1 503 ")
    assert b'"retryable":true' in connection.transport.written
    assert connection.finished == [exchange]


async def test_exception_after_the_response_keeps_the_connection_open() -> None:
    async def fail_after_response(exchange: HttpExchange) -> None:
        await exchange.send(200, [], b"{}")
        raise ZeroDivisionError

    transport = (await run(fail_after_response)).transport
    assert transport.written.startswith(b"HTTP/1.1 200 ")
    assert b"500" not in transport.written
    assert not transport.closed


async def test_response_after_a_disconnect_is_discarded() -> None:
    exchange, connection = make_exchange()
    notified: list[str] = []
    exchange.on_disconnect(lambda: notified.append("before"))
    exchange.disconnect()
    exchange.on_disconnect(lambda: notified.append("after"))
    await exchange.send(200, [], b"{}")
    assert notified == ["before", "after"]
    assert connection.transport.written == b""
