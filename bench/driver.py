"""Load driver: keep-alive connections with one call in flight each. Validates responses and records latencies."""

import asyncio
from collections.abc import Sequence
from itertools import count
from time import perf_counter, perf_counter_ns, process_time
from typing import NamedTuple, cast

import httptools

from bench.histogram import Histogram
from bench.wire import FIRST_NUMBER, Endpoint, call_template, check_response, initialize, initialized

_CHECK_EVERY = 32
_GRACE = 10.0

_numbers = count(FIRST_NUMBER)


class HttpResponse(NamedTuple):
    status: int
    headers: dict[bytes, bytes]
    body: bytes


class Tally:
    """Totals of one load run over all connections."""

    def __init__(self, seconds: float, limit: int) -> None:
        self.histogram = Histogram()
        self.calls = 0
        self.errors = 0
        self.complaint: str | None = None
        self.seconds = 0.0
        self.driver_cpu = 0.0
        self._limit = limit
        self._deadline = perf_counter_ns() + int(seconds * 1e9)

    def should_continue(self, now: int) -> bool:
        return now < self._deadline and self.calls < self._limit

    def add_error(self, complaint: str) -> None:
        self.errors += 1
        self.complaint = self.complaint or complaint


class ClientConnection(asyncio.Protocol):
    """One client connection.

    `request` sends a single request and waits for the response. `loop` sends calls back to back until the tally is
    complete.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.session: str | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._headers: dict[bytes, bytes] = {}
        self._body = b""
        self._pending: asyncio.Future[HttpResponse] | None = None
        self._tally: Tally | None = None
        self._done: asyncio.Future[None] | None = None
        self._template = b""
        self._number = 0
        self._sent = 0

    async def open(self) -> None:
        """Connect and, in the handshake era, begin a session."""
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: self, "127.0.0.1", self.endpoint.port)
        if self.endpoint.era == "handshake":
            self.session = await self.begin_session()
        self._template = call_template(self.endpoint, self.session)

    async def begin_session(self) -> str:
        answer = await self.request(initialize(self.endpoint))
        if answer.status != 200:
            raise ConnectionError(f"no session: HTTP {answer.status} {answer.body[:200]!r}")
        session = answer.headers.get(b"mcp-session-id", b"")  # a server may be stateless
        accepted = await self.request(initialized(self.endpoint, session.decode()))
        if accepted.status != 202:
            raise ConnectionError(f"initialized was rejected: HTTP {accepted.status} {accepted.body[:200]!r}")
        return session.decode()

    async def request(self, request: bytes) -> HttpResponse:
        assert self._transport is not None
        self._pending = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await asyncio.wait_for(self._pending, _GRACE)

    async def call(self) -> str | None:
        """Make one call. Returns a description of a wrong response, or None."""
        number = next(_numbers)
        answer = await self.request(self._template % (number, number))
        return check_response(answer.status, answer.body, number)

    def loop(self, tally: Tally) -> "asyncio.Future[None]":
        self._pending = None
        self._tally = tally
        self._done = asyncio.get_running_loop().create_future()
        self._send()
        return self._done

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._pending is not None and not self._pending.done():
            self._pending.set_exception(ConnectionError("the server closed the connection"))
        if self._done is not None and not self._done.done():
            assert self._tally is not None
            self._tally.add_error("the server closed the connection")
            self._done.set_result(None)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._pending is not None:
            self._headers[name.lower()] = value

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        body, self._body = self._body, b""
        if self._tally is not None:
            self._count(self._tally, status, body)
        elif self._pending is not None and not self._pending.done():
            headers, self._headers = self._headers, {}
            self._pending.set_result(HttpResponse(status, headers, body))

    def _send(self) -> None:
        assert self._transport is not None
        self._number = number = next(_numbers)
        self._sent = perf_counter_ns()
        self._transport.write(self._template % (number, number))

    def _count(self, tally: Tally, status: int, body: bytes) -> None:
        now = perf_counter_ns()
        tally.histogram.add(now - self._sent)
        tally.calls += 1
        # Every response must contain its own number; one in `_CHECK_EVERY` is decoded and compared completely.
        if status != 200 or b"hello %d" % self._number not in body or self._number % _CHECK_EVERY == 0:
            error = check_response(status, body, self._number)
            if error is not None:
                tally.add_error(error)
        if tally.should_continue(now):
            self._send()
        else:
            assert self._done is not None
            self._done.set_result(None)


async def open_connections(endpoints: Sequence[Endpoint]) -> list[ClientConnection]:
    """Open one connection per endpoint; all or none. Raises `OSError` or `TimeoutError`."""
    connections = [ClientConnection(endpoint) for endpoint in endpoints]
    outcomes = await asyncio.gather(*(connection.open() for connection in connections), return_exceptions=True)
    for outcome in outcomes:
        if outcome is not None:
            close_connections(connections)
            raise outcome
    return connections


def close_connections(connections: Sequence[ClientConnection]) -> None:
    for connection in connections:
        connection.close()


async def drive(connections: Sequence[ClientConnection], *, seconds: float, limit: int = 10**9) -> Tally:
    """Make calls on all connections concurrently for `seconds` or until `limit` calls are complete."""
    tally = Tally(seconds, limit)
    started, cpu = perf_counter(), process_time()
    _, unfinished = await asyncio.wait([connection.loop(tally) for connection in connections], timeout=seconds + _GRACE)
    tally.seconds, tally.driver_cpu = perf_counter() - started, process_time() - cpu
    for _ in unfinished:
        tally.add_error(f"no response within {_GRACE:g} s")
    return tally
