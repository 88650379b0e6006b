"""Event streams that a client can resume."""

import asyncio
import sys

from gateway.protocol.event_streams import (
    MAX_PRINCIPAL_BYTES,
    MAX_PROCESS_BYTES,
    MAX_STREAM_BYTES,
    MAX_STREAMS,
    RETENTION_SECONDS,
    EventStream,
    EventStreams,
)
from tests.gateway.fakes import Clock, FakeResponseWriter, until


async def attached(stream: EventStream, after: int | None = None, *, prime: bool = False) -> FakeResponseWriter:
    writer = FakeResponseWriter()
    await stream.attach(writer, after=after, prime=prime)
    return writer


def numbers(writer: FakeResponseWriter) -> list[int]:
    return [int(each.id.rpartition(".")[2]) for each in writer.events]


async def test_event_ids_contain_the_stream_id_and_count_from_one() -> None:
    stream = EventStreams("w1").create("s", "cid")
    writer = await attached(stream)
    for payload in (b"1", b"2", b"3"):
        await stream.send(payload)
    assert [each.id for each in writer.events] == [f"{stream.id}.{number}" for number in (1, 2, 3)]
    assert writer.headers["x-correlation-id"] == "cid"


async def test_events_without_an_attached_client_are_buffered() -> None:
    stream = EventStream("w1.x", "s", "cid")
    await stream.send(b"1")
    await stream.send(b"2")
    assert numbers(await attached(stream, after=0)) == [1, 2]
    assert numbers(await attached(stream, after=1)) == [2]
    assert numbers(await attached(stream, after=2)) == []


async def test_first_client_gets_only_later_events() -> None:
    stream = EventStream("w1.x", "s", "cid")
    await stream.send(b"1")
    writer = await attached(stream)
    await stream.send(b"2")
    assert numbers(writer) == [2]


async def test_priming_event_has_its_own_number() -> None:
    stream = EventStream("w1.x", "s", "cid")
    writer = await attached(stream, prime=True)
    await stream.send(b"1")
    assert writer.chunks[0].startswith(b"id: w1.x.1\nretry: ")
    assert numbers(writer) == [2]


async def test_buffer_holds_at_most_one_mebibyte() -> None:
    stream = EventStream("w1.x", "s", "cid")
    for _ in range(40):
        await stream.send(b"x" * (MAX_STREAM_BYTES // 16))
    retained = await attached(stream, after=25)
    assert sum(map(len, retained.chunks)) <= MAX_STREAM_BYTES
    assert numbers(retained)[-1] == 40


async def test_resume_after_an_evicted_event_is_not_found() -> None:
    streams = EventStreams("w1")
    stream = streams.create("s", "cid")
    for _ in range(40):
        await stream.send(b"x" * (MAX_STREAM_BYTES // 16))
    assert streams.find(f"{stream.id}.1", "s") is None


async def test_response_larger_than_the_buffer_is_replayed_or_not_found() -> None:
    streams = EventStreams("w1")
    stream = streams.create("s", "cid")
    await stream.send(b"1")
    await stream.send(b"x" * (MAX_STREAM_BYTES + 1))
    found = streams.find(f"{stream.id}.1", "s")
    assert found is None or numbers(await attached(stream, after=1)) == [2]


async def test_nothing_is_written_to_a_disconnected_client() -> None:
    stream = EventStream("w1.x", "s", "cid")
    writer = await attached(stream)
    assert not stream.is_detached
    writer.disconnect()
    await stream.send(b"1")
    await stream.keep_alive()
    assert stream.is_detached
    assert writer.chunks == []
    await asyncio.wait_for(stream.wait_detached(), 5)


async def test_ended_stream_closes_the_response_and_can_be_replayed_to_its_end() -> None:
    stream = EventStream("w1.x", "s", "cid")
    writer = await attached(stream)
    await stream.send(b"1")
    await stream.end()
    assert writer.closed
    late = await attached(stream, after=0)
    assert numbers(late) == [1]
    assert late.closed
    assert not late.written_after_end


async def test_events_of_concurrent_senders_are_in_order() -> None:
    stream = EventStream("w1.x", "s", "cid")
    writer = FakeResponseWriter()
    await asyncio.gather(stream.attach(writer), *(stream.send(b"%d" % number) for number in range(20)))
    assert numbers(writer) == list(range(1, 21))


async def test_late_disconnect_of_the_old_connection_does_not_detach_the_new_one() -> None:
    stream = EventStream("w1.x", "s", "cid")
    old = await attached(stream)
    new = await attached(stream, after=0)
    old.disconnect()
    await stream.send(b"1")
    assert numbers(new) == [1]


async def test_resuming_closes_the_old_connection() -> None:
    stream = EventStream("w1.x", "s", "cid")
    old = await attached(stream)
    await attached(stream, after=0)
    assert old.closed


async def test_wait_for_the_old_connection_ends_when_the_stream_is_resumed() -> None:
    stream = EventStream("w1.x", "s", "cid")
    await attached(stream)
    attending = asyncio.create_task(stream.wait_detached())
    await asyncio.sleep(0)
    await attached(stream, after=0)
    await stream.end()
    done, _ = await asyncio.wait({attending}, timeout=0.05)
    attending.cancel()
    assert done


# ---- EventStreams -----------------------------------------------------------------------------------------------


async def test_stream_is_found_by_event_id_only_for_its_owner() -> None:
    streams = EventStreams("w1")
    stream = streams.create("s", "cid")
    assert streams.find(f"{stream.id}.12", "s") == (stream, 12)
    assert streams.find(f"{stream.id}.12", "t") is None
    for bad in (
        "",
        ".",
        "x.1",
        stream.id,
        f"{stream.id}.",
        f"{stream.id}.-1",
        f"{stream.id}.\u0661",
        f"{stream.id}.1e3",
    ):
        assert streams.find(bad, "s") is None


async def test_event_number_of_any_length_is_accepted() -> None:
    streams = EventStreams("w1")
    stream = streams.create("s", "cid")
    found = streams.find(f"{stream.id}.{'9' * 10_000}", "s")
    assert found is not None
    assert numbers(await attached(stream, after=found[1])) == []


async def test_stream_is_removed_one_minute_after_its_end() -> None:
    clock, streams = Clock(), EventStreams("w1")
    stream = streams.create("s", "cid")
    await stream.end()
    streams.schedule_removal(stream)
    await clock.forward(RETENTION_SECONDS - 1)
    assert streams.find(f"{stream.id}.1", "s") is not None
    await clock.forward(2)
    await until(lambda: streams.find(f"{stream.id}.1", "s") is None)


async def test_oldest_stream_is_removed_at_the_maximum() -> None:
    streams = EventStreams("w1")
    first = streams.create("s", "cid")
    for _ in range(MAX_STREAMS):
        last = streams.create("s", "cid")
    assert streams.find(f"{first.id}.1", "s") is None
    assert streams.find(f"{last.id}.1", "s") is not None


async def ended_stream(streams: EventStreams, size: int, principal: str = "p") -> EventStream:
    """An ended stream with a response of `size` bytes."""
    stream = streams.create("s", "cid", principal)
    await stream.send(b"x" * size)
    await stream.end()
    streams.schedule_removal(stream)
    return stream


def retained(streams: EventStreams, *checked: EventStream) -> list[bool]:
    return [streams.find(f"{each.id}.0", "s") is not None for each in checked]


async def test_threat_25_ended_streams_of_a_principal_are_limited_in_bytes() -> None:
    streams = EventStreams("w1")
    third = MAX_PRINCIPAL_BYTES // 3 - 1000
    others = await ended_stream(streams, third, "q")
    running = streams.create("s", "cid", "p")
    own = [await ended_stream(streams, third) for _ in range(10)]
    assert retained(streams, *own) == [False] * 7 + [True] * 3
    assert retained(streams, others, running) == [True, True]
    # A stream above the limit is kept alone.
    large = await ended_stream(streams, MAX_PRINCIPAL_BYTES + 1)
    assert retained(streams, *own, large, others) == [False] * 10 + [True, True]
    held = sys.getrefcount(own[0])
    assert held == 2  # The list and the call itself; nothing else refers to it.


async def test_threat_25_ended_streams_of_all_principals_are_limited_in_bytes() -> None:
    streams = EventStreams("w1")
    size = MAX_PRINCIPAL_BYTES - 1000
    max_streams = MAX_PROCESS_BYTES // size
    each = [await ended_stream(streams, size, f"p{number}") for number in range(max_streams + 3)]
    assert retained(streams, *each) == [False] * 3 + [True] * max_streams


async def test_removed_streams_no_longer_count_against_the_limit() -> None:
    clock, streams = Clock(), EventStreams("w1")
    first = [await ended_stream(streams, MAX_PRINCIPAL_BYTES // 2 - 1000) for _ in range(2)]
    await clock.forward(RETENTION_SECONDS + 1)
    await until(lambda: retained(streams, *first) == [False, False])
    second = [await ended_stream(streams, MAX_PRINCIPAL_BYTES // 2 - 1000) for _ in range(2)]
    assert retained(streams, *second) == [True, True]
