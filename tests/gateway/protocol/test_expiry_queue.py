"""Things that each wait as long, with one timer."""

import asyncio
from typing import Any

from gateway.protocol.event_streams import ExpiryQueue
from tests.gateway.fakes import Clock, until


async def test_each_is_due_in_its_turn_though_one_before_it_fails() -> None:
    clock, due = Clock(), list[int]()
    failures: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: failures.append(context["exception"]))

    def take(number: int) -> None:
        due.append(number)
        if number == 1:
            raise ValueError(number)

    later = ExpiryQueue(10.0, take)
    later.add(1)
    later.add(2)
    await clock.forward(5)
    later.add(3)
    await clock.forward(5)
    await until(lambda: due == [1, 2])
    assert [type(each) for each in failures] == [ValueError]
    await clock.forward(5)
    await until(lambda: due == [1, 2, 3])
    later.add(4)
    await clock.forward(10)
    await until(lambda: due == [1, 2, 3, 4])
