"""The wires of both eras, and keep-alive comments."""

import asyncio
import time

import pytest

from gateway.contract import MODERN, ClientProfile
from gateway.errors import Fault, Kind
from gateway.protocol.client_requests import ClientRequests
from gateway.protocol.event_streams import EventStreams
from gateway.protocol.sealed_tokens import TokenSeal
from gateway.protocol.wire import KeepAlive, LegacyWire, ModernWire
from gateway.sse import KEEP_ALIVE_COMMENT
from gateway.state.bus import MemoryBus
from tests.gateway.fakes import FakeResponseWriter, until

SEAL = TokenSeal([b"k" * 32])
PROGRESS = "notifications/progress"


def legacy(writer: FakeResponseWriter, streams: EventStreams | None = None, version: str = "2025-06-18") -> LegacyWire:
    client = ClientProfile(version, {"roots": {}}, session="s")
    return LegacyWire(writer, client, "cid", streams or EventStreams("w1"), ClientRequests(MemoryBus("w1"), SEAL))


def modern(writer: FakeResponseWriter, level: str | None = None) -> ModernWire:
    return ModernWire(writer, ClientProfile(MODERN, {}, log_level=level), "cid")


@pytest.mark.parametrize("make", [legacy, modern])
async def test_call_without_notifications_gets_one_json_response(make: type) -> None:
    writer = FakeResponseWriter()
    await make(writer).finish(404, b"{}", (b"retry-after", b"1"))
    assert (writer.status, writer.body, writer.headers["retry-after"]) == (404, b"{}", "1")
    assert not writer.opened


@pytest.mark.parametrize("make", [legacy, modern])
async def test_concurrent_notifications_open_one_stream_in_order(make: type) -> None:
    writer = FakeResponseWriter()
    wire = make(writer)
    await asyncio.gather(*(wire.notify(PROGRESS, {"progress": number}) for number in range(10)), wire.keep_alive())
    await wire.finish(200, b'{"id":1}')
    assert [each["params"]["progress"] for each in writer.messages[:-1]] == list(range(10))
    assert (writer.closed, writer.written_after_end, writer.messages[-1]) == (True, False, {"id": 1})


@pytest.mark.parametrize("make", [legacy, modern])
async def test_keep_alive_turns_a_long_response_into_a_stream(make: type) -> None:
    writer = FakeResponseWriter()
    wire = make(writer)
    wire.idle_since = time.monotonic() - 100
    await wire.keep_alive()
    assert writer.chunks == [KEEP_ALIVE_COMMENT]
    assert time.monotonic() - wire.idle_since < 50
    await wire.finish(200, b"{}")
    await wire.keep_alive()
    assert not writer.written_after_end


async def test_notification_after_the_response_is_dropped() -> None:
    writer = FakeResponseWriter()
    wire = modern(writer)
    await wire.finish(200, b"{}")
    await wire.notify(PROGRESS, {"progress": 1})
    assert not writer.written_after_end


async def test_notification_after_a_handshake_era_response_is_dropped() -> None:
    writer, streams = FakeResponseWriter(), EventStreams("w1")
    wire = legacy(writer, streams)
    await wire.finish(200, b"{}")
    await wire.notify(PROGRESS, {"progress": 1})
    assert not writer.written_after_end
    assert streams._streams == {}


async def test_waiting_time_is_counted_during_and_after_a_client_request() -> None:
    writer, streams, client_requests = FakeResponseWriter(), EventStreams("w1"), ClientRequests(MemoryBus("w1"), SEAL)
    wire = LegacyWire(writer, ClientProfile("2025-06-18", {"roots": {}}, session="s"), "cid", streams, client_requests)
    assert wire.waited == 0.0
    task = asyncio.create_task(wire.ask({"a": {"method": "roots/list"}}))
    await until(lambda: writer.messages)
    assert wire.waited > 0.0
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    after = wire.waited
    assert after > 0.0
    assert wire.waited == after


class FakeStream:
    """A stream that counts its keep-alive comments."""

    def __init__(self, idle_for: float) -> None:
        self.idle_since = time.monotonic() - idle_for
        self.comments = 0

    async def keep_alive(self) -> None:
        self.comments += 1
        self.idle_since = time.monotonic() + 1000


async def test_only_idle_streams_get_a_keep_alive() -> None:
    keep_alive = KeepAlive(interval=0.01)
    idle, removed, active = FakeStream(10), FakeStream(10), FakeStream(-1000)
    for each in (idle, removed, active):
        keep_alive.add(each)
    keep_alive.discard(removed)
    running = asyncio.create_task(keep_alive.run())
    await until(lambda: idle.comments)
    running.cancel()
    assert (idle.comments, removed.comments, active.comments) == (1, 0, 0)


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
async def test_client_that_does_not_accept_streams_gets_only_the_response(accept: str, streams: bool) -> None:
    writer, client = FakeResponseWriter(), ClientProfile("2025-06-18", {"roots": {}}, session="s")
    wire = LegacyWire(writer, client, "cid", EventStreams("w1"), ClientRequests(MemoryBus("w1"), SEAL), accept)
    before = wire.idle_since = time.monotonic() - 100
    await wire.notify(PROGRESS, {"progressToken": 1, "progress": 1})
    await wire.keep_alive()
    assert wire.idle_since > before  # `KeepAlive` does not retry at once.
    if not streams:
        with pytest.raises(Fault) as refused:
            await wire.ask({"a": {"method": "roots/list"}})
        assert refused.value.kind is Kind.UNSUPPORTED
    await wire.end_response()
    assert writer.opened is streams
    await wire.finish(200, b'{"id":1}')
    assert (writer.headers["content-type"] == "text/event-stream") is streams
    assert (writer.body == b'{"id":1}') is not streams
