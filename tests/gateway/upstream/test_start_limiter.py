"""A crowd of starts is let through a few at a time, and one that hangs keeps nobody waiting for long."""

import asyncio

from gateway.upstream.concurrency import StartLimiter


class Crowd:
    """Each start is under way until it is let go."""

    def __init__(self, starts: StartLimiter, count: int) -> None:
        self.started: list[int] = []
        self.leave = [asyncio.Event() for _ in range(count)]
        self._starts = starts
        self.tasks = [asyncio.create_task(self._start(number)) for number in range(count)]

    async def _start(self, number: int) -> None:
        async with self._starts.turn():
            self.started.append(number)
            await self.leave[number].wait()

    async def began(self, count: int) -> None:
        async with asyncio.timeout(10):
            while len(self.started) < count:
                await asyncio.sleep(0.001)


async def test_no_more_than_so_many_start_at_once_and_each_in_its_turn() -> None:
    crowd = Crowd(StartLimiter(2, long=60), 5)
    await crowd.began(2)
    await asyncio.sleep(0.01)
    assert crowd.started == [0, 1]
    crowd.leave[1].set()
    await crowd.began(3)
    assert crowd.started == [0, 1, 2]
    for each in crowd.leave:
        each.set()
    await asyncio.gather(*crowd.tasks)
    assert crowd.started == [0, 1, 2, 3, 4]


async def test_one_that_takes_long_lets_the_next_begin_and_frees_its_place_only_once() -> None:
    starts = StartLimiter(1, long=0.2)
    crowd = Crowd(starts, 2)
    await crowd.began(2)  # the first still hangs
    crowd.leave[0].set()
    await crowd.tasks[0]
    crowd.leave[1].set()
    await crowd.tasks[1]
    # Had the first given its place back twice, two would begin at once now.
    again = Crowd(starts, 2)
    await again.began(1)
    await asyncio.sleep(0.01)
    assert again.started == [0]
    for each in again.leave:
        each.set()
    await asyncio.gather(*again.tasks)


async def test_a_place_is_free_again_after_a_start_that_was_given_up() -> None:
    starts = StartLimiter(1, long=60)
    crowd = Crowd(starts, 2)
    await crowd.began(1)
    crowd.tasks[0].cancel()
    await crowd.began(2)
    crowd.leave[1].set()
    await crowd.tasks[1]
