"""The compact set of ended sessions."""

import tracemalloc
from hashlib import sha256

from gateway.state.sessions import EndedSessions
from tests.gateway.state.test_sessions import Clock

NAMES = [sha256(str(number).encode()).hexdigest()[:32] for number in range(20_000)]


def ended_sessions(names: list[str], *, capacity: int = 100_000, expires: float = 2000.0) -> EndedSessions:
    ended = EndedSessions(capacity, Clock())
    for name in names:
        ended.add(name, expires)
    return ended


def test_only_added_names_are_contained() -> None:
    ended = ended_sessions(NAMES[:5000])
    assert [name in ended for name in NAMES[:5000]] == [True] * 5000
    assert [name in ended for name in NAMES[5000:]] == [False] * 15_000


def test_only_the_newest_names_up_to_capacity_are_held() -> None:
    ended = EndedSessions(100, Clock())
    for added, name in enumerate(NAMES[:1000], start=1):
        ended.add(name, 2000.0)
        assert name in ended
        assert sum(each in ended for each in NAMES[max(0, added - 150) : added]) == min(added, 100)


def test_name_expires_and_can_be_added_again() -> None:
    clock = Clock()
    ended = EndedSessions(100, clock)
    ended.add("d", clock.now + 10)
    clock.now += 10
    assert "d" not in ended
    ended.add("d", clock.now + 10)
    assert "d" in ended


def test_space_of_expired_names_is_reused() -> None:
    clock = Clock()
    ended = EndedSessions(100_000, clock)
    for number, name in enumerate(NAMES):
        clock.now += 1
        ended.add(name, clock.now + 50)
        assert (NAMES[number - 50] in ended) is False
    assert sum(name in ended for name in NAMES) == 50
    assert len(ended._table) <= 512


def test_ended_session_uses_less_than_50_bytes() -> None:
    tracemalloc.start()
    try:
        ended = ended_sessions(NAMES)
        size, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert NAMES[0] in ended
    assert size < 50 * len(NAMES)
    assert peak < 90 * len(NAMES)
