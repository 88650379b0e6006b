"""The load: keep-alive connections on uvloop, one call in flight on each, answers checked, latencies counted."""

import asyncio
from collections.abc import Sequence
from itertools import count
from time import perf_counter, perf_counter_ns, process_time
from typing import NamedTuple, cast

import httptools

from bench.histogram import Histogram
from bench.wire import FIRST_NUMBER, Door, call_template, complaint, initialize, initialized

_CHECK_EVERY = 32
_GRACE = 10.0

_numbers = count(FIRST_NUMBER)


class Answer(NamedTuple):
    status: int
    headers: dict[bytes, bytes]
    body: bytes


class Tally:
    """What one run of the load found, over all its connections."""

    def __init__(self, seconds: float, limit: int) -> None:
        self.histogram = Histogram()
        self.calls = 0
        self.errors = 0
        self.complaint: str | None = None
        self.seconds = 0.0
        self.driver_cpu = 0.0
        self._limit = limit
        self._deadline = perf_counter_ns() + int(seconds * 1e9)

    def wants_more(self, now: int) -> bool:
        return now < self._deadline and self.calls < self._limit

    def blame(self, complaint: str) -> None:
        self.errors += 1
        self.complaint = self.complaint or complaint


class Lane(asyncio.Protocol):
    """One connection: `ask` sends a request and waits; `loop` calls without a pause until the tally has enough."""

    def __init__(self, door: Door) -> None:
        self.door = door
        self.session: str | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._headers: dict[bytes, bytes] = {}
        self._body = b""
        self._asked: asyncio.Future[Answer] | None = None
        self._tally: Tally | None = None
        self._done: asyncio.Future[None] | None = None
        self._template = b""
        self._number = 0
        self._sent = 0

    async def open(self) -> None:
        """Connect and, in the handshake era, begin a session of its own."""
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: self, "127.0.0.1", self.door.port)
        if self.door.era == "handshake":
            self.session = await self.begin_session()
        self._template = call_template(self.door, self.session)

    async def begin_session(self) -> str:
        answer = await self.ask(initialize(self.door))
        if answer.status != 200:
            raise ConnectionError(f"no session: HTTP {answer.status} {answer.body[:200]!r}")
        session = answer.headers.get(b"mcp-session-id", b"")  # some keep none
        accepted = await self.ask(initialized(self.door, session.decode()))
        if accepted.status != 202:
            raise ConnectionError(f"initialized was answered with HTTP {accepted.status} {accepted.body[:200]!r}")
        return session.decode()

    async def ask(self, request: bytes) -> Answer:
        assert self._transport is not None
        self._asked = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await asyncio.wait_for(self._asked, _GRACE)

    async def call(self) -> str | None:
        """One call; what is wrong with its answer, or None."""
        number = next(_numbers)
        answer = await self.ask(self._template % (number, number))
        return complaint(answer.status, answer.body, number)

    def loop(self, tally: Tally) -> "asyncio.Future[None]":
        self._asked = None
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
        if self._asked is not None and not self._asked.done():
            self._asked.set_exception(ConnectionError("the server closed the connection"))
        if self._done is not None and not self._done.done():
            assert self._tally is not None
            self._tally.blame("the server closed the connection")
            self._done.set_result(None)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._asked is not None:
            self._headers[name.lower()] = value

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        body, self._body = self._body, b""
        if self._tally is not None:
            self._count(self._tally, status, body)
        elif self._asked is not None and not self._asked.done():
            headers, self._headers = self._headers, {}
            self._asked.set_result(Answer(status, headers, body))

    def _send(self) -> None:
        assert self._transport is not None
        self._number = number = next(_numbers)
        self._sent = perf_counter_ns()
        self._transport.write(self._template % (number, number))

    def _count(self, tally: Tally, status: int, body: bytes) -> None:
        now = perf_counter_ns()
        tally.histogram.add(now - self._sent)
        tally.calls += 1
        # Every answer must hold its own number; one in so many is decoded and compared whole.
        if status != 200 or b"hello %d" % self._number not in body or self._number % _CHECK_EVERY == 0:
            wrong = complaint(status, body, self._number)
            if wrong is not None:
                tally.blame(wrong)
        if tally.wants_more(now):
            self._send()
        else:
            assert self._done is not None
            self._done.set_result(None)


async def open_lanes(doors: Sequence[Door]) -> list[Lane]:
    """One open connection for each door; all or none. Raises `OSError` or `TimeoutError`."""
    lanes = [Lane(door) for door in doors]
    outcomes = await asyncio.gather(*(lane.open() for lane in lanes), return_exceptions=True)
    for outcome in outcomes:
        if outcome is not None:
            close_lanes(lanes)
            raise outcome
    return lanes


def close_lanes(lanes: Sequence[Lane]) -> None:
    for lane in lanes:
        lane.close()


async def drive(lanes: Sequence[Lane], *, seconds: float, limit: int = 10**9) -> Tally:
    """Call on every lane at once until `seconds` have passed or `limit` calls were answered."""
    tally = Tally(seconds, limit)
    began, cpu = perf_counter(), process_time()
    _, silent = await asyncio.wait([lane.loop(tally) for lane in lanes], timeout=seconds + _GRACE)
    tally.seconds, tally.driver_cpu = perf_counter() - began, process_time() - cpu
    for _ in silent:
        tally.blame(f"no answer within {_GRACE:g} s")
    return tally
