"""Threads of one's own: what waits in them is in nobody else's way, and only so much waits."""

import asyncio
import threading

import pytest

from gateway.auth.thread_pool import ThreadPool
from gateway.errors import Fault, Kind


async def test_work_beyond_what_may_wait_is_sent_away_and_room_comes_back() -> None:
    threads, go = ThreadPool("test", 1, 2), threading.Event()
    try:
        under_way = [asyncio.ensure_future(threads(go.wait)) for _ in range(3)]
        await asyncio.sleep(0)  # let each of them begin
        with pytest.raises(Fault) as refused:
            await threads(int)
        assert refused.value.kind is Kind.UNAVAILABLE
        assert await asyncio.to_thread(lambda: "others go on") == "others go on"
        go.set()
        assert await asyncio.gather(*under_way) == [True] * 3
        assert await threads(int, "7") == 7
    finally:
        go.set()
        await threads.close()
