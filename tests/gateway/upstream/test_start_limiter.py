"""The limit on concurrent starts, which a slow start does not block for long."""

import asyncio

from gateway.upstream.concurrency import StartLimiter


class Starts:
    """Concurrent starts; each runs until the test sets its `finish` event."""

    def __init__(self, limiter: StartLimiter, count: int) -> None:
        self.started: list[int] = []
        self.finish = [asyncio.Event() for _ in range(count)]
        self._limiter = limiter
        self.tasks = [asyncio.create_task(self._start(number)) for number in range(count)]

    async def _start(self, number: int) -> None:
        async with self._limiter.slot():
            self.started.append(number)
            await self.finish[number].wait()

    async def wait_started(self, count: int) -> None:
        async with asyncio.timeout(10):
            while len(self.started) < count:
                await asyncio.sleep(0.001)


async def test_concurrent_starts_are_limited_and_in_fifo_order() -> None:
    starts = Starts(StartLimiter(2, slow_after=60), 5)
    await starts.wait_started(2)
    await asyncio.sleep(0.01)
    assert starts.started == [0, 1]
    starts.finish[1].set()
    await starts.wait_started(3)
    assert starts.started == [0, 1, 2]
    for each in starts.finish:
        each.set()
    await asyncio.gather(*starts.tasks)
    assert starts.started == [0, 1, 2, 3, 4]


async def test_slow_start_frees_its_slot_early_and_only_once() -> None:
    limiter = StartLimiter(1, slow_after=0.2)
    starts = Starts(limiter, 2)
    await starts.wait_started(2)  # the first one is still running
    starts.finish[0].set()
    await starts.tasks[0]
    starts.finish[1].set()
    await starts.tasks[1]
    # If the first had released its slot twice, two would start at once here.
    second_batch = Starts(limiter, 2)
    await second_batch.wait_started(1)
    await asyncio.sleep(0.01)
    assert second_batch.started == [0]
    for each in second_batch.finish:
        each.set()
    await asyncio.gather(*second_batch.tasks)


async def test_cancelled_start_frees_its_slot() -> None:
    limiter = StartLimiter(1, slow_after=60)
    starts = Starts(limiter, 2)
    await starts.wait_started(1)
    starts.tasks[0].cancel()
    await starts.wait_started(2)
    starts.finish[1].set()
    await starts.tasks[1]
