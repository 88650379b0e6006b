"""Counters that several processes share in a real Valkey, and their fallback while it is unreachable."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from starlette.requests import Request

from gateway.edge.ip_rate_limit import Gate, IpRateLimiter
from gateway.errors import Fault, Kind
from gateway.state.bus import MemoryBus
from gateway.state.redis_bus import RedisBus
from gateway.wiring.limits import shared_route_limits, shared_windows, sign_in_failure_counter
from tests.servers import Valkey

Windows = Any


@pytest.fixture
async def two_processes(valkey: Valkey, prefix: str) -> AsyncIterator[tuple[Windows, Windows]]:
    """The shared windows of two processes."""
    async with AsyncExitStack() as stack:
        buses = [await RedisBus.open(valkey.url, prefix) for _ in range(2)]
        for bus in buses:
            stack.push_async_callback(bus.close)
        one, two = (shared_windows(bus, prefix) for bus in buses)
        yield one, two


def _request() -> Request:
    return Request({"type": "http", "headers": [], "method": "GET", "path": "/", "query_string": b""})


def _gate(windows: Windows, rate: str = "5/minute") -> Gate:
    return IpRateLimiter(lambda _: "192.0.2.7", shared_route_limits(windows)).gate("api", rate)


async def _count_passed(*gates: Gate) -> int:
    rejected: list[Fault] = []
    for gate in gates:
        try:
            await gate(_request())
        except Fault as fault:
            rejected.append(fault)
    assert all(fault.kind is Kind.RATE_LIMITED and (fault.retry_after or 0) >= 1 for fault in rejected)
    return len(gates) - len(rejected)


async def test_two_processes_share_the_limit_of_one_address(two_processes: tuple[Windows, Windows]) -> None:
    one, two = (_gate(windows) for windows in two_processes)
    assert await _count_passed(*(one, two) * 5) == 5


async def test_two_processes_share_a_limit_of_thousands(two_processes: tuple[Windows, Windows]) -> None:
    one, two = (_gate(windows, "2000/hour") for windows in two_processes)
    assert 1900 <= await _count_passed(*(one, two) * 1100) <= 2000


async def test_each_process_counts_separately_while_valkey_is_unreachable(
    two_processes: tuple[Windows, Windows], valkey: Valkey
) -> None:
    one, two = (_gate(windows) for windows in two_processes)
    valkey.kill()
    assert await _count_passed(*(one,) * 8) == 5
    assert await _count_passed(*(two,) * 8) == 5


async def test_single_process_counts_in_memory() -> None:
    assert shared_windows(MemoryBus(), "x") is None
    gate = _gate(None)
    assert await _count_passed(*(gate,) * 8) == 5


async def test_failed_sign_ins_are_counted_across_processes(
    two_processes: tuple[Windows, Windows], valkey: Valkey
) -> None:
    one, two = (sign_in_failure_counter(windows) for windows in two_processes)
    for counter in (one, two, one):
        assert await counter.count("address a", 3, 300) == 0
    for counter in (one, two):
        assert 290 < await counter.count("address a", 3, 300) <= 300
    await two.uncount("address a", 300)
    assert await one.count("address a", 3, 300) == 0, "an uncounted failure must not count"
    assert await two.count("address a", 3, 300) > 0
    assert await two.count("address b", 3, 300) == 0
    valkey.kill()
    assert await two.count("address a", 3, 300) == 0  # its own counter has no failures
    assert await one.count("address a", 3, 300) > 0
