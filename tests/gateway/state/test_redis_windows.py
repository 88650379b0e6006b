"""Windows that several processes share."""

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
    link = RedisConnection(url)
    await link.open()
    windows = RedisWindows(link, prefix)
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    charges = [WindowCharge("calls|acme|p", 100, 60)]
    took = 0
    for _ in range(100):
        took += windows.spend(("calls|acme|p",), 0.0) or await windows.take(charges) is None
    print(took)
    await link.close()

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture
async def windows(valkey_url: str, prefix: str) -> AsyncIterator[RedisWindows]:
    link = RedisConnection(valkey_url)
    await link.open()
    yield RedisWindows(link, prefix)
    await link.close()


async def test_four_processes_at_a_hundred_a_minute_admit_exactly_a_hundred(valkey_url: str, prefix: str) -> None:
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
    outs = await asyncio.gather(*(process.communicate(b"go\n") for process in started))
    took = [int(out) for out, _ in outs]
    assert sum(took) == 100


async def test_an_edge_burst_admits_no_more_than_the_limit_and_room_comes_back(windows: RedisWindows) -> None:
    loop = asyncio.get_running_loop()
    charges = [WindowCharge("k", 20, 0.5)]
    times: list[float] = []
    until = loop.time() + 1.3
    while loop.time() < until:
        # Before it is asked: Redis cannot have counted it earlier.
        before = loop.time()
        if await windows.take(charges) is None:
            times.append(before)
    assert len(times) >= 40
    for first, later in zip(times, times[20:], strict=False):
        # The 21st of any 20 came at least a window after the first was answered, less the round trip itself.
        assert later - first > 0.5 - 0.1


async def test_all_limits_are_charged_or_none(windows: RedisWindows) -> None:
    wide, narrow = WindowCharge("wide", 3, 60), WindowCharge("narrow", 1, 60)
    assert await windows.take([wide, narrow]) is None
    for _ in range(5):
        refused = await windows.take([wide, narrow])
        assert refused is not None
        assert refused.which == 1
        assert 59 < refused.wait <= 60
    assert await windows.take([wide]) is None
    assert await windows.take([wide]) is None
    refused = await windows.take([wide])
    assert refused is not None


async def test_costs_add_up_and_what_is_known_afterwards_too(windows: RedisWindows) -> None:
    assert await windows.take([WindowCharge("cost", 10, 60, 4.5)]) is None
    await windows.add([WindowCharge("cost", 10, 60, 20.0)])
    assert await windows.take([WindowCharge("cost", 10, 60, 0.5)]) is not None


async def test_a_high_limit_is_taken_in_portions_that_never_admit_too_much(windows: RedisWindows) -> None:
    charges, keys = [WindowCharge("high", 5000, 60)], ("high",)
    asked = admitted = 0
    clock = asyncio.get_running_loop().time
    while True:
        if windows.spend(keys, clock()):
            admitted += 1
            continue
        asked += 1
        if await windows.take(charges) is not None:
            break
        admitted += 1
    assert admitted <= 5000
    assert admitted > 4800
    assert asked < admitted / 2


async def test_redis_killed_in_the_middle_is_noticed_at_once_and_found_again(valkey: Valkey, prefix: str) -> None:
    link = RedisConnection(valkey.url)
    await link.open()
    windows = RedisWindows(link, prefix)
    charges = [WindowCharge("k", 2, 60)]
    assert await windows.take(charges) is None
    valkey.kill()
    began = asyncio.get_running_loop().time()
    for _ in range(50):
        with pytest.raises(RedisUnavailable):
            await windows.take(charges)
    # One of them waited to find out; the others did not.
    assert asyncio.get_running_loop().time() - began < 2
    valkey.start()
    async with asyncio.timeout(10):
        while True:
            try:
                assert await windows.take(charges) is None
                break
            except RedisUnavailable:
                await asyncio.sleep(0.05)
    await link.close()
