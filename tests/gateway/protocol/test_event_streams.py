"""Streams that a client may leave and resume."""

import asyncio
import sys

from gateway.protocol.event_streams import (
    KEPT_BYTES,
    KEPT_SECONDS,
    MAX_STREAMS,
    PRINCIPAL_BYTES,
    PROCESS_BYTES,
    EventStream,
    EventStreams,
)
from tests.gateway.fakes import Clock, Paper, until


async def attached(stream: EventStream, after: int | None = None, *, prime: bool = False) -> Paper:
    paper = Paper()
    await stream.attach(paper, after=after, prime=prime)
    return paper


def numbers(paper: Paper) -> list[int]:
    return [int(each.id.rpartition(".")[2]) for each in paper.events]


async def test_events_are_numbered_from_one_and_named_by_their_stream() -> None:
    stream = EventStreams("w1").new("s", "cid")
    paper = await attached(stream)
    for payload in (b"1", b"2", b"3"):
        await stream.send(payload)
    assert [each.id for each in paper.events] == [f"{stream.id}.{number}" for number in (1, 2, 3)]
    assert paper.headers["x-correlation-id"] == "cid"


async def test_what_is_sent_while_nobody_listens_is_kept() -> None:
    stream = EventStream("w1.x", "s", "cid")
    await stream.send(b"1")
    await stream.send(b"2")
    assert numbers(await attached(stream, after=0)) == [1, 2]
    assert numbers(await attached(stream, after=1)) == [2]
    assert numbers(await attached(stream, after=2)) == []


async def test_a_first_client_hears_only_what_comes() -> None:
    stream = EventStream("w1.x", "s", "cid")
    await stream.send(b"1")
    paper = await attached(stream)
    await stream.send(b"2")
    assert numbers(paper) == [2]


async def test_priming_takes_a_number_of_its_own() -> None:
    stream = EventStream("w1.x", "s", "cid")
    paper = await attached(stream, prime=True)
    await stream.send(b"1")
    assert paper.chunks[0].startswith(b"id: w1.x.1\nretry: ")
    assert numbers(paper) == [2]


async def test_no_more_than_a_mebibyte_is_kept() -> None:
    stream = EventStream("w1.x", "s", "cid")
    for _ in range(40):
        await stream.send(b"x" * (KEPT_BYTES // 16))
    kept = await attached(stream, after=25)
    assert sum(map(len, kept.chunks)) <= KEPT_BYTES
    assert numbers(kept)[-1] == 40


async def test_a_resume_that_cannot_bring_all_that_was_missed_is_not_found() -> None:
    streams = EventStreams("w1")
    stream = streams.new("s", "cid")
    for _ in range(40):
        await stream.send(b"x" * (KEPT_BYTES // 16))
    assert streams.find(f"{stream.id}.1", "s") is None


async def test_an_answer_larger_than_the_bound_is_not_lost_in_silence() -> None:
    streams = EventStreams("w1")
    stream = streams.new("s", "cid")
    await stream.send(b"1")
    await stream.send(b"x" * (KEPT_BYTES + 1))
    found = streams.find(f"{stream.id}.1", "s")
    assert found is None or numbers(await attached(stream, after=1)) == [2]


async def test_a_client_that_left_is_written_to_no_more() -> None:
    stream = EventStream("w1.x", "s", "cid")
    paper = await attached(stream)
    assert not stream.alone
    paper.leave()
    await stream.send(b"1")
    await stream.keep_alive()
    assert stream.alone
    assert paper.chunks == []
    await asyncio.wait_for(stream.attended(), 5)


async def test_the_end_closes_the_response_and_whoever_comes_later_gets_the_rest_and_the_end() -> None:
    stream = EventStream("w1.x", "s", "cid")
    paper = await attached(stream)
    await stream.send(b"1")
    await stream.end()
    assert paper.closed
    late = await attached(stream, after=0)
    assert numbers(late) == [1]
    assert late.closed
    assert not late.over_again


async def test_events_of_several_senders_are_never_out_of_order() -> None:
    stream = EventStream("w1.x", "s", "cid")
    paper = Paper()
    await asyncio.gather(stream.attach(paper), *(stream.send(b"%d" % number) for number in range(20)))
    assert numbers(paper) == list(range(1, 21))


async def test_a_client_that_came_back_keeps_its_stream_when_its_old_connection_is_noticed_dead() -> None:
    stream = EventStream("w1.x", "s", "cid")
    old = await attached(stream)
    new = await attached(stream, after=0)
    old.leave()
    await stream.send(b"1")
    assert numbers(new) == [1]


async def test_the_connection_that_a_client_resumed_from_is_closed() -> None:
    stream = EventStream("w1.x", "s", "cid")
    old = await attached(stream)
    await attached(stream, after=0)
    assert old.closed


async def test_whoever_attended_the_old_connection_is_let_go_when_it_is_resumed() -> None:
    stream = EventStream("w1.x", "s", "cid")
    await attached(stream)
    attending = asyncio.create_task(stream.attended())
    await asyncio.sleep(0)
    await attached(stream, after=0)
    await stream.end()
    done, _ = await asyncio.wait({attending}, timeout=0.05)
    attending.cancel()
    assert done


# ---- all streams of a worker ------------------------------------------------------------------------------------


async def test_a_stream_is_found_by_its_events_and_only_by_its_owner() -> None:
    streams = EventStreams("w1")
    stream = streams.new("s", "cid")
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


async def test_a_number_of_any_length_is_harmless() -> None:
    streams = EventStreams("w1")
    stream = streams.new("s", "cid")
    found = streams.find(f"{stream.id}.{'9' * 10_000}", "s")
    assert found is not None
    assert numbers(await attached(stream, after=found[1])) == []


async def test_a_stream_is_forgotten_a_minute_after_its_end() -> None:
    clock, streams = Clock(), EventStreams("w1")
    stream = streams.new("s", "cid")
    await stream.end()
    streams.forget_later(stream)
    await clock.forward(KEPT_SECONDS - 1)
    assert streams.find(f"{stream.id}.1", "s") is not None
    await clock.forward(2)
    await until(lambda: streams.find(f"{stream.id}.1", "s") is None)


async def test_the_oldest_streams_make_room() -> None:
    streams = EventStreams("w1")
    first = streams.new("s", "cid")
    for _ in range(MAX_STREAMS):
        last = streams.new("s", "cid")
    assert streams.find(f"{first.id}.1", "s") is None
    assert streams.find(f"{last.id}.1", "s") is not None


async def over(streams: EventStreams, size: int, principal: str = "p") -> EventStream:
    """One that held a large answer, and is over."""
    stream = streams.new("s", "cid", principal)
    await stream.send(b"x" * size)
    await stream.end()
    streams.forget_later(stream)
    return stream


def kept(streams: EventStreams, *given: EventStream) -> list[bool]:
    return [streams.find(f"{each.id}.0", "s") is not None for each in given]


async def test_threat_25_what_is_over_holds_no_more_than_a_principals_share() -> None:
    streams = EventStreams("w1")
    third = PRINCIPAL_BYTES // 3 - 1000
    others = await over(streams, third, "q")
    running = streams.new("s", "cid", "p")
    mine = [await over(streams, third) for _ in range(10)]
    assert kept(streams, *mine) == [False] * 7 + [True] * 3
    assert kept(streams, others, running) == [True, True]
    # One that is larger than the share stays alone.
    large = await over(streams, PRINCIPAL_BYTES + 1)
    assert kept(streams, *mine, large, others) == [False] * 10 + [True, True]
    held = sys.getrefcount(mine[0])
    assert held == 2  # by the list and by that call; nothing else


async def test_threat_25_what_is_over_holds_no_more_than_the_process_may_whoever_it_belongs_to() -> None:
    streams = EventStreams("w1")
    size = PRINCIPAL_BYTES - 1000
    most = PROCESS_BYTES // size
    each = [await over(streams, size, f"p{number}") for number in range(most + 3)]
    assert kept(streams, *each) == [False] * 3 + [True] * most


async def test_what_is_forgotten_makes_room_again() -> None:
    clock, streams = Clock(), EventStreams("w1")
    first = [await over(streams, PRINCIPAL_BYTES // 2 - 1000) for _ in range(2)]
    await clock.forward(KEPT_SECONDS + 1)
    await until(lambda: kept(streams, *first) == [False, False])
    second = [await over(streams, PRINCIPAL_BYTES // 2 - 1000) for _ in range(2)]
    assert kept(streams, *second) == [True, True]
