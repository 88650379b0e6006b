"""Streams and subscriptions cannot be had without end."""

from contextlib import AsyncExitStack
from typing import Any

import httpx

from tests.flows.replica_client import Legacy

CORE = {"core": {"module": "backends.core"}}


async def test_threat_25_one_stream_too_many_is_refused_and_others_are_not_touched(start: Any) -> None:
    streams = {"per_principal": 2, "per_tenant": 3}
    async with start(backends=CORE, streams=streams) as gateway, AsyncExitStack() as stack:
        http = await stack.enter_async_context(httpx.AsyncClient(timeout=20, verify=False))

        async def opened(key: str) -> int:
            client = Legacy(http, key)
            await client.initialize(gateway)
            return (await stack.enter_async_context(client.listen(gateway))).status

        other = await gateway.new_key(subject="bob")
        assert [await opened(gateway.key) for _ in range(3)] == [200, 200, 429]
        assert [await opened(other) for _ in range(2)] == [200, 429]
        refused = (await gateway.post("subscriptions/listen", {"notifications": {"toolsListChanged": True}})).json()
        assert refused["error"]["code"] == 429
        assert refused["error"]["data"]["retryable"] is True
        assert "result" in await gateway.call("core_ping")


async def test_a_stream_that_ended_makes_room(start: Any) -> None:
    async with start(backends=CORE, streams={"per_principal": 1}) as gateway:
        async with httpx.AsyncClient(timeout=20, verify=False) as http:
            client = Legacy(http, gateway.key)
            await client.initialize(gateway)
            for _ in range(3):
                status = 429
                while status == 429:  # until the gateway has seen the last one leave
                    async with client.listen(gateway) as events:
                        status = events.status
                assert status == 200
