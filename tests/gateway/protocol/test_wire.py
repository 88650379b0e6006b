"""The ways back to a client while a call runs, and the pulse that keeps them alive."""

import asyncio
import time

import pytest

from gateway.contract import MODERN, ClientProfile
from gateway.errors import Fault, Kind
from gateway.protocol.client_requests import ClientRequests
from gateway.protocol.event_streams import EventStreams
from gateway.protocol.sealed_tokens import TokenSeal
from gateway.protocol.wire import KeepAlive, LegacyWire, ModernWire
from gateway.sse import COMMENT
from gateway.state.bus import MemoryBus
from tests.gateway.fakes import Paper, until

SEAL = TokenSeal([b"k" * 32])
PROGRESS = "notifications/progress"


def legacy(paper: Paper, streams: EventStreams | None = None, version: str = "2025-06-18") -> LegacyWire:
    client = ClientProfile(version, {"roots": {}}, session="s")
    return LegacyWire(paper, client, "cid", streams or EventStreams("w1"), ClientRequests(MemoryBus("w1"), SEAL))


def modern(paper: Paper, level: str | None = None) -> ModernWire:
    return ModernWire(paper, ClientProfile(MODERN, {}, log_level=level), "cid")


@pytest.mark.parametrize("make", [legacy, modern])
async def test_a_call_that_says_nothing_before_its_end_is_one_json_answer(make: type) -> None:
    paper = Paper()
    await make(paper).finish(404, b"{}", (b"retry-after", b"1"))
    assert (paper.status, paper.body, paper.headers["retry-after"]) == (404, b"{}", "1")
    assert not paper.opened


@pytest.mark.parametrize("make", [legacy, modern])
async def test_whatever_is_said_at_once_opens_one_stream_and_keeps_its_order(make: type) -> None:
    paper = Paper()
    wire = make(paper)
    await asyncio.gather(*(wire.notify(PROGRESS, {"progress": number}) for number in range(10)), wire.keep_alive())
    await wire.finish(200, b'{"id":1}')
    assert [each["params"]["progress"] for each in paper.messages[:-1]] == list(range(10))
    assert (paper.closed, paper.over_again, paper.messages[-1]) == (True, False, {"id": 1})


@pytest.mark.parametrize("make", [legacy, modern])
async def test_a_sign_of_life_turns_a_long_answer_into_a_stream(make: type) -> None:
    paper = Paper()
    wire = make(paper)
    wire.silent_since = time.monotonic() - 100
    await wire.keep_alive()
    assert paper.chunks == [COMMENT]
    assert time.monotonic() - wire.silent_since < 50
    await wire.finish(200, b"{}")
    await wire.keep_alive()
    assert not paper.over_again


async def test_what_is_said_after_the_answer_goes_nowhere() -> None:
    paper = Paper()
    wire = modern(paper)
    await wire.finish(200, b"{}")
    await wire.notify(PROGRESS, {"progress": 1})
    assert not paper.over_again


async def test_what_is_said_after_the_answer_of_the_handshake_era_goes_nowhere() -> None:
    paper, streams = Paper(), EventStreams("w1")
    wire = legacy(paper, streams)
    await wire.finish(200, b"{}")
    await wire.notify(PROGRESS, {"progress": 1})
    assert not paper.over_again
    assert streams._streams == {}


async def test_time_spent_asking_is_counted_while_it_runs_and_after() -> None:
    paper, streams, asking = Paper(), EventStreams("w1"), ClientRequests(MemoryBus("w1"), SEAL)
    wire = LegacyWire(paper, ClientProfile("2025-06-18", {"roots": {}}, session="s"), "cid", streams, asking)
    assert wire.waited == 0.0
    task = asyncio.create_task(wire.ask({"a": {"method": "roots/list"}}))
    await until(lambda: paper.messages)
    assert wire.waited > 0.0
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    after = wire.waited
    assert after > 0.0
    assert wire.waited == after


class Breathing:
    def __init__(self, silent_for: float) -> None:
        self.silent_since = time.monotonic() - silent_for
        self.breaths = 0

    async def keep_alive(self) -> None:
        self.breaths += 1
        self.silent_since = time.monotonic() + 1000


async def test_only_who_was_silent_for_long_says_that_it_lives() -> None:
    pulse = KeepAlive(quiet=0.01)
    long, left, lately = Breathing(10), Breathing(10), Breathing(-1000)
    for each in (long, left, lately):
        pulse.add(each)
    pulse.discard(left)
    running = asyncio.create_task(pulse.run())
    await until(lambda: long.breaths)
    running.cancel()
    assert (long.breaths, left.breaths, lately.breaths) == (1, 0, 0)


@pytest.mark.parametrize(
    ("accept", "streams"),
    [
        ("application/json", False),
        ("application/json;q=0.9, text/plain", False),
        ("application/json, text/event-stream", True),
        ("*/*", True),
        ("application/json, text/*", True),
    ],
)
async def test_only_a_client_that_accepts_streams_is_told_anything_before_the_answer(
    accept: str, streams: bool
) -> None:
    paper, client = Paper(), ClientProfile("2025-06-18", {"roots": {}}, session="s")
    wire = LegacyWire(paper, client, "cid", EventStreams("w1"), ClientRequests(MemoryBus("w1"), SEAL), accept)
    before = wire.silent_since = time.monotonic() - 100
    await wire.notify(PROGRESS, {"progressToken": 1, "progress": 1})
    await wire.keep_alive()
    assert wire.silent_since > before  # the pulse does not try again at once
    if not streams:
        with pytest.raises(Fault) as refused:
            await wire.ask({"a": {"method": "roots/list"}})
        assert refused.value.kind is Kind.UNSUPPORTED
    await wire.hang_up()
    assert paper.opened is streams
    await wire.finish(200, b'{"id":1}')
    assert (paper.headers["content-type"] == "text/event-stream") is streams
    assert (paper.body == b'{"id":1}') is not streams
