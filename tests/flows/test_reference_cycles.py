"""Objects of a request are freed with its response and connection, without the cyclic garbage collector.

Objects in reference cycles stay in memory until the collector runs, which makes memory use grow.
"""

import asyncio
import gc
from typing import Any

from gateway.contract import Call
from gateway.edge.http_exchange import HttpExchange
from gateway.edge.http_protocol import HttpProtocol
from gateway.errors import Fault

KINDS = (HttpProtocol, HttpExchange, Call, Fault)


def live_objects() -> list[str]:
    return sorted(type(each).__name__ for each in gc.get_objects() if isinstance(each, KINDS))


async def test_requests_and_connections_leave_no_reference_cycles(start: Any) -> None:
    async with start(backends={"core": {"module": "backends.core"}}) as gateway:
        gc.collect()
        before = live_objects()
        gc.disable()
        try:
            assert "result" in await gateway.call("core_ping")
            assert "error" in await gateway.call("core_nothing")
            for bad in ({"arguments": 7}, {"requestState": "no such state"}, {"_meta": {"progressToken": []}}):
                answer = (await gateway.post("tools/call", {"name": "core_ping", **bad})).json()
                assert "error" in answer, answer
            async with asyncio.timeout(10):
                while live_objects() != before:
                    await asyncio.sleep(0.02)
        finally:
            gc.enable()
