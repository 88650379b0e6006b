"""The fast path: which requests take it, and how it ends after failures."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.edge.fast_path import ConnectionControl, FastPath, FastPathExchange
from gateway.edge.mcp_endpoint import McpEndpoint

HOST = {"host": "127.0.0.1"}


class RecordingTransport:
    """A transport that records the bytes written to it."""

    def __init__(self) -> None:
        self.written = b""
        self.closed = False

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        self.closed = True


class Connection:
    """The part of a connection that an exchange uses."""

    default_headers = ()
    client = ("127.0.0.1", 1)

    def __init__(self) -> None:
        self.transport = RecordingTransport()
        self.flow = SimpleNamespace(write_paused=False)

    def on_response_complete(self) -> None: ...

    def finish_exchange(self, exchange: FastPathExchange) -> None: ...


def fast_path(serve: Callable[[FastPathExchange], Any]) -> FastPath:
    endpoint = SimpleNamespace(serve_fast_path=serve)
    return FastPath(cast("McpEndpoint", endpoint), lambda host: True)


def make_exchange() -> tuple[FastPathExchange, RecordingTransport]:
    connection = Connection()
    exchange = FastPathExchange(cast("ConnectionControl", connection), "POST", "/mcp", dict(HOST), None, True)
    return exchange, connection.transport


async def do_nothing(exchange: FastPathExchange) -> None: ...


@pytest.mark.parametrize(
    ("verb", "url", "more", "is_accepted"),
    [
        (b"POST", b"/mcp", {"content-length": "12"}, True),
        (b"POST", b"/mcp/core", {"content-length": "99999"}, True),
        (b"POST", b"/mcp", {"content-length": "100000"}, False),
        (b"POST", b"/mcp", {"content-length": "4194304"}, False),
        (b"POST", b"/mcp", {}, False),
        (b"GET", b"/mcp", {}, True),
        (b"GET", b"/mcp", {"content-length": "1"}, False),
        (b"DELETE", b"/mcp", {}, False),
        (b"POST", b"/mcp?x", {"content-length": "1"}, False),
        (b"POST", b"/mcpx", {"content-length": "1"}, False),
        (b"POST", b"/mcp", {"content-length": "1", "origin": "http://x"}, False),
    ],
)
def test_only_plain_small_requests_take_the_fast_path(
    verb: bytes, url: bytes, more: dict[str, str], is_accepted: bool
) -> None:
    assert fast_path(do_nothing).accepts(verb, url, {**HOST, **more}) is is_accepted


async def test_body_is_released_with_the_response() -> None:
    exchange, transport = make_exchange()
    exchange.append_body(b"x" * 1000)
    await exchange.send(401, [], b"no")
    assert transport.written.endswith(b"\r\n\r\nno")
    assert not exchange.body


async def test_unexpected_exception_is_answered_with_500() -> None:
    async def fail(exchange: FastPathExchange) -> None:
        raise ZeroDivisionError

    exchange, transport = make_exchange()
    await fast_path(fail).run(exchange)
    assert transport.written.startswith(b"HTTP/1.1 500 ")
    assert b'"kind":"internal"' in transport.written
    assert b"ZeroDivision" not in transport.written
    assert transport.closed


async def test_cancelled_request_is_answered_with_retryable_503() -> None:
    async def cancel(exchange: FastPathExchange) -> None:
        raise asyncio.CancelledError

    exchange, transport = make_exchange()
    with pytest.raises(asyncio.CancelledError):
        await fast_path(cancel).run(exchange)
    assert transport.written.startswith(b"HTTP/1.1 503 ")
    assert b'"retryable":true' in transport.written


async def test_exception_after_the_response_keeps_the_connection_open() -> None:
    async def fail_after_response(exchange: FastPathExchange) -> None:
        await exchange.send(200, [], b"{}")
        raise ZeroDivisionError

    exchange, transport = make_exchange()
    await fast_path(fail_after_response).run(exchange)
    assert transport.written.startswith(b"HTTP/1.1 200 ")
    assert b"500" not in transport.written
    assert not transport.closed
