"""What several processes count together over a real Valkey, and each for itself while that is away."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from starlette.requests import Request

from gateway.edge.ip_rate_limit import Gate, IpRateLimiter
from gateway.errors import Fault, Kind
from gateway.state.bus import MemoryBus
from gateway.state.redis_bus import RedisBus
from gateway.wiring.limits import counted_routes, failed_sign_ins, shared_windows
from tests.servers import Valkey

Windows = Any


@pytest.fixture
async def both(valkey: Valkey, prefix: str) -> AsyncIterator[tuple[Windows, Windows]]:
    """The windows of two processes."""
    async with AsyncExitStack() as stack:
        buses = [await RedisBus.open(valkey.url, prefix) for _ in range(2)]
        for bus in buses:
            stack.push_async_callback(bus.close)
        one, two = (shared_windows(bus, prefix) for bus in buses)
        yield one, two


def _request() -> Request:
    return Request({"type": "http", "headers": [], "method": "GET", "path": "/", "query_string": b""})


def _gate(windows: Windows, rate: str = "5/minute") -> Gate:
    return IpRateLimiter(lambda _: "192.0.2.7", counted_routes(windows)).gate("api", rate)


async def _passed(*gates: Gate) -> int:
    refused: list[Fault] = []
    for gate in gates:
        try:
            await gate(_request())
        except Fault as fault:
            refused.append(fault)
    assert all(fault.kind is Kind.RATE_LIMITED and (fault.retry_after or 0) >= 1 for fault in refused)
    return len(gates) - len(refused)


async def test_two_processes_let_one_address_pass_as_often_as_one_would(both: tuple[Windows, Windows]) -> None:
    one, two = (_gate(windows) for windows in both)
    assert await _passed(*(one, two) * 5) == 5


async def test_a_rate_of_thousands_is_counted_together_as_well(both: tuple[Windows, Windows]) -> None:
    one, two = (_gate(windows, "2000/hour") for windows in both)
    assert 1900 <= await _passed(*(one, two) * 1100) <= 2000


async def test_while_the_server_is_away_each_process_counts_for_itself(
    both: tuple[Windows, Windows], valkey: Valkey
) -> None:
    one, two = (_gate(windows) for windows in both)
    valkey.kill()
    assert await _passed(*(one,) * 8) == 5
    assert await _passed(*(two,) * 8) == 5


async def test_a_process_alone_counts_in_memory() -> None:
    assert shared_windows(MemoryBus(), "x") is None
    gate = _gate(None)
    assert await _passed(*(gate,) * 8) == 5


async def test_failed_sign_ins_at_one_process_slow_the_next_attempt_at_another(
    both: tuple[Windows, Windows], valkey: Valkey
) -> None:
    one, two = (failed_sign_ins(windows) for windows in both)
    for tally in (one, two, one):
        assert await tally.take("address a", 3, 300) == 0
    for tally in (one, two):
        assert 290 < await tally.take("address a", 3, 300) <= 300
    await two.give_back("address a", 300)
    assert await one.take("address a", 3, 300) == 0, "one was no failure after all"
    assert await two.take("address a", 3, 300) > 0
    assert await two.take("address b", 3, 300) == 0
    valkey.kill()
    assert await two.take("address a", 3, 300) == 0  # it alone has seen none that failed
    assert await one.take("address a", 3, 300) > 0
