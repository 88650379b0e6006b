"""Rate-limit windows shared by several processes."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import gateway
from gateway.state.redis_connection import RedisConnection
from gateway.state.redis_windows import RedisUnavailable, RedisWindows
from gateway.state.windows import WindowCharge
from tests.servers import Valkey

ROOT = Path(gateway.__file__).parents[1]

PROCESS = """
import asyncio, sys
from gateway.state.redis_connection import RedisConnection
from gateway.state.redis_windows import RedisWindows
from gateway.state.windows import WindowCharge

async def main(url, prefix):
    connection = RedisConnection(url)
    await connection.open()
    windows = RedisWindows(connection, prefix)
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    charges = [WindowCharge("calls|acme|p", 100, 60)]
    admitted_count = 0
    for _ in range(100):
        admitted_count += windows.spend(("calls|acme|p",), 0.0) or await windows.take(charges) is None
    print(admitted_count)
    await connection.close()

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture
async def windows(valkey_url: str, prefix: str) -> AsyncIterator[RedisWindows]:
    connection = RedisConnection(valkey_url)
    await connection.open()
    yield RedisWindows(connection, prefix)
    await connection.close()


async def test_four_processes_admit_exactly_the_limit_of_100_together(valkey_url: str, prefix: str) -> None:
    started = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", PROCESS, valkey_url, prefix),
            cwd=ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        for _ in range(4)
    ]
    for process in started:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
    outputs = await asyncio.gather(*(process.communicate(b"go\n") for process in started))
    admitted_count = [int(out) for out, _ in outputs]
    assert sum(admitted_count) == 100


async def test_burst_never_exceeds_the_limit_within_any_window(windows: RedisWindows) -> None:
    loop = asyncio.get_running_loop()
    charges = [WindowCharge("k", 20, 0.5)]
    times: list[float] = []
    until = loop.time() + 1.3
    while loop.time() < until:
        # Taken before the request: Redis cannot have counted the call earlier.
        before = loop.time()
        if await windows.take(charges) is None:
            times.append(before)
    assert len(times) >= 40
    for first, later in zip(times, times[20:], strict=False):
        # Call 21 comes at least one window after call 1, minus the round trip.
        assert later - first > 0.5 - 0.1


async def test_either_all_limits_are_charged_or_none(windows: RedisWindows) -> None:
    wide, narrow = WindowCharge("wide", 3, 60), WindowCharge("narrow", 1, 60)
    assert await windows.take([wide, narrow]) is None
    for _ in range(5):
        refused = await windows.take([wide, narrow])
        assert refused is not None
        assert refused.charge_index == 1
        assert 59 < refused.wait <= 60
    assert await windows.take([wide]) is None
    assert await windows.take([wide]) is None
    refused = await windows.take([wide])
    assert refused is not None


async def test_costs_add_up_including_those_charged_afterwards(windows: RedisWindows) -> None:
    assert await windows.take([WindowCharge("cost", 10, 60, 4.5)]) is None
    await windows.add([WindowCharge("cost", 10, 60, 20.0)])
    assert await windows.take([WindowCharge("cost", 10, 60, 0.5)]) is not None


async def test_high_limit_is_charged_in_portions_without_exceeding_it(windows: RedisWindows) -> None:
    charges, keys = [WindowCharge("high", 5000, 60)], ("high",)
    round_trips = admitted = 0
    clock = asyncio.get_running_loop().time
    while True:
        if windows.spend(keys, clock()):
            admitted += 1
            continue
        round_trips += 1
        if await windows.take(charges) is not None:
            break
        admitted += 1
    assert admitted <= 5000
    assert admitted > 4800
    assert round_trips < admitted / 2


async def test_killed_redis_fails_fast_and_recovers(valkey: Valkey, prefix: str) -> None:
    connection = RedisConnection(valkey.url)
    await connection.open()
    windows = RedisWindows(connection, prefix)
    charges = [WindowCharge("k", 2, 60)]
    assert await windows.take(charges) is None
    valkey.kill()
    began = asyncio.get_running_loop().time()
    for _ in range(50):
        with pytest.raises(RedisUnavailable):
            await windows.take(charges)
    # Only one call waited for the timeout.
    assert asyncio.get_running_loop().time() - began < 2
    valkey.start()
    async with asyncio.timeout(10):
        while True:
            try:
                assert await windows.take(charges) is None
                break
            except RedisUnavailable:
                await asyncio.sleep(0.05)
    await connection.close()
