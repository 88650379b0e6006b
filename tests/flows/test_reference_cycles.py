"""What a request needed is gone with its answer and its connection: nothing waits for the garbage collector, which
looks only now and then, so that whatever waits for it is memory that grows.
"""

import asyncio
import gc
from typing import Any

from gateway.contract import Call
from gateway.edge.fast_path import FastPathExchange
from gateway.edge.server import HttpProtocol
from gateway.errors import Fault

KINDS = (HttpProtocol, FastPathExchange, Call, Fault)


def left() -> list[str]:
    return sorted(type(each).__name__ for each in gc.get_objects() if isinstance(each, KINDS))


async def test_neither_an_answer_nor_a_refusal_nor_a_connection_waits_for_the_collector(start: Any) -> None:
    async with start(backends={"core": {"module": "backends.core"}}) as gateway:
        gc.collect()
        before = left()
        gc.disable()
        try:
            assert "result" in await gateway.call("core_ping")
            assert "error" in await gateway.call("core_nothing")
            for bad in ({"arguments": 7}, {"requestState": "no such state"}, {"_meta": {"progressToken": []}}):
                answer = (await gateway.post("tools/call", {"name": "core_ping", **bad})).json()
                assert "error" in answer, answer
            async with asyncio.timeout(10):
                while left() != before:
                    await asyncio.sleep(0.02)
        finally:
            gc.enable()
