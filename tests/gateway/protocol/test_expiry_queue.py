"""The expiry queue with a single timer."""

import asyncio
from typing import Any

from gateway.protocol.event_streams import ExpiryQueue
from tests.gateway.fakes import Clock, until


async def test_items_expire_in_order_even_if_a_callback_fails() -> None:
    clock, expired = Clock(), list[int]()
    failures: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: failures.append(context["exception"]))

    def expire(number: int) -> None:
        expired.append(number)
        if number == 1:
            raise ValueError(number)

    queue = ExpiryQueue(10.0, expire)
    queue.add(1)
    queue.add(2)
    await clock.forward(5)
    queue.add(3)
    await clock.forward(5)
    await until(lambda: expired == [1, 2])
    assert [type(each) for each in failures] == [ValueError]
    await clock.forward(5)
    await until(lambda: expired == [1, 2, 3])
    queue.add(4)
    await clock.forward(10)
    await until(lambda: expired == [1, 2, 3, 4])
