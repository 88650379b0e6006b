"""What takes the direct lane, what it keeps, and how it ends when something goes wrong."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.edge.fast_path import FastPath, FastPathExchange

HOST = {"host": "127.0.0.1"}


class Wire:
    """A transport that keeps what is written to it."""

    def __init__(self) -> None:
        self.written = b""
        self.closed = False

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        self.closed = True


class Connection:
    """As much of a `Line` as an exchange asks for."""

    stamps = ()
    client = ("127.0.0.1", 1)

    def __init__(self) -> None:
        self.transport = Wire()
        self.flow = SimpleNamespace(write_paused=False)

    def on_response_complete(self) -> None: ...

    def leave(self, exchange: FastPathExchange) -> None: ...


def lane(serve: Callable[[FastPathExchange], Any]) -> FastPath:
    door = SimpleNamespace(serve_direct=serve)
    return FastPath(cast("Door", door), lambda host: True)


def exchange() -> tuple[FastPathExchange, Wire]:
    line = Connection()
    made = FastPathExchange(cast("Line", line), "POST", "/mcp", dict(HOST), None, True)
    return made, line.transport


async def nothing(given: FastPathExchange) -> None: ...


@pytest.mark.parametrize(
    ("verb", "url", "more", "taken"),
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
def test_only_a_plain_small_request_takes_it(verb: bytes, url: bytes, more: dict[str, str], taken: bool) -> None:
    assert lane(nothing).takes(verb, url, {**HOST, **more}) is taken


async def test_a_body_is_let_go_with_the_answer() -> None:
    made, wire = exchange()
    made.take(b"x" * 1000)
    await made.answer(401, [], b"no")
    assert wire.written.endswith(b"\r\n\r\nno")
    assert not made.body


async def test_a_request_that_fails_unforeseen_is_told_so() -> None:
    async def fails(given: FastPathExchange) -> None:
        raise ZeroDivisionError

    made, wire = exchange()
    await lane(fails).run(made)
    assert wire.written.startswith(b"HTTP/1.1 500 ")
    assert b'"kind":"internal"' in wire.written
    assert b"ZeroDivision" not in wire.written
    assert wire.closed


async def test_a_request_that_is_cut_off_is_told_to_try_again() -> None:
    async def cut(given: FastPathExchange) -> None:
        raise asyncio.CancelledError

    made, wire = exchange()
    with pytest.raises(asyncio.CancelledError):
        await lane(cut).run(made)
    assert wire.written.startswith(b"HTTP/1.1 503 ")
    assert b'"retryable":true' in wire.written


async def test_what_fails_after_its_answer_leaves_the_connection_to_the_next() -> None:
    async def fails_late(given: FastPathExchange) -> None:
        await given.answer(200, [], b"{}")
        raise ZeroDivisionError

    made, wire = exchange()
    await lane(fails_late).run(made)
    assert wire.written.startswith(b"HTTP/1.1 200 ")
    assert b"500" not in wire.written
    assert not wire.closed
