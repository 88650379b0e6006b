"""The bounded thread pool."""

import asyncio
import threading

import pytest

from gateway.auth.thread_pool import ThreadPool
from gateway.errors import Fault, Kind


async def test_call_beyond_the_queue_limit_is_rejected_until_a_thread_is_free() -> None:
    threads, go = ThreadPool("test", 1, 2), threading.Event()
    try:
        running = [asyncio.ensure_future(threads(go.wait)) for _ in range(3)]
        await asyncio.sleep(0)  # let each task start
        with pytest.raises(Fault) as refused:
            await threads(int)
        assert refused.value.kind is Kind.UNAVAILABLE
        assert await asyncio.to_thread(lambda: "other pool") == "other pool"
        go.set()
        assert await asyncio.gather(*running) == [True] * 3
        assert await threads(int, "7") == 7
    finally:
        go.set()
        await threads.close()
