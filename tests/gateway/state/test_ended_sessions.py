"""Names of sessions that are over."""

import tracemalloc
from hashlib import sha256

from gateway.state.sessions import EndedSessions
from tests.gateway.state.test_sessions import Clock

NAMES = [sha256(str(number).encode()).hexdigest()[:32] for number in range(20_000)]


def filled(names: list[str], *, most: int = 100_000, expires: float = 2000.0) -> EndedSessions:
    ended = EndedSessions(most, Clock())
    for name in names:
        ended.add(name, expires)
    return ended


def test_what_was_added_is_in_it_and_nothing_else_is() -> None:
    ended = filled(NAMES[:5000])
    assert [name in ended for name in NAMES[:5000]] == [True] * 5000
    assert [name in ended for name in NAMES[5000:]] == [False] * 15_000


def test_the_newest_are_held_however_many_came() -> None:
    ended = EndedSessions(100, Clock())
    for came, name in enumerate(NAMES[:1000], start=1):
        ended.add(name, 2000.0)
        assert name in ended
        assert sum(each in ended for each in NAMES[max(0, came - 150) : came]) == min(came, 100)


def test_a_name_is_held_until_it_expires_and_may_come_again() -> None:
    clock = Clock()
    ended = EndedSessions(100, clock)
    ended.add("d", clock.now + 10)
    clock.now += 10
    assert "d" not in ended
    ended.add("d", clock.now + 10)
    assert "d" in ended


def test_the_room_of_what_has_expired_is_used_again() -> None:
    clock = Clock()
    ended = EndedSessions(100_000, clock)
    for number, name in enumerate(NAMES):
        clock.now += 1
        ended.add(name, clock.now + 50)
        assert (NAMES[number - 50] in ended) is False
    assert sum(name in ended for name in NAMES) == 50
    assert len(ended._table) <= 512


def test_a_session_that_is_over_costs_next_to_nothing() -> None:
    tracemalloc.start()
    try:
        ended = filled(NAMES)
        size, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert NAMES[0] in ended
    assert size < 50 * len(NAMES)
    assert peak < 90 * len(NAMES)
