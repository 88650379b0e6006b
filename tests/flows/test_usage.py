"""`gatehouse usage` and `/api/v1/usage` over two replicas, and the rate limit of the operator API."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import Running
from tests.flows.process import run as command
from tests.flows.replica_client import HandshakeClient

Pair = tuple[Running, Running]


@pytest.fixture
async def pair(run: Any, tmp_path: Path, valkey_url: str, prefix: str) -> AsyncIterator[Pair]:
    settings = {
        "backends": {"lamp": {"module": "tests.flows.fixtures.lamp"}},
        "bus": {"url": valkey_url, "prefix": prefix},
        "limits": {"api": "20/minute", "rules": {"all": {"rate": "500/minute", "per": ["tenant"]}}},
    }
    async with run(tmp_path, **settings) as one, run(tmp_path, **settings) as two:
        yield one, two.as_(one.key)


async def _usage(at: Running, key: str) -> httpx.Response:
    async with httpx.AsyncClient(timeout=20, verify=False) as http:
        return await http.get(f"{at.base}/api/v1/usage", headers={"authorization": f"Bearer {key}"})


async def test_usage_sums_limits_shares_and_streams_over_all_workers(pair: Pair, tmp_path: Path) -> None:
    one, two = pair
    admin = await one.new_key(subject="op", scopes=("mcp:admin",))
    other_key = await one.new_key(tenant="default", subject="eve")
    async with httpx.AsyncClient(timeout=20, verify=False) as http:
        client = HandshakeClient(http, one.key)
        await client.initialize(one)
        async with client.call(one, 1, "lamp_wait") as first, client.call(two, 2, "lamp_wait") as second:
            await first.next()
            await second.next()
            async with client.listen(two) as events:
                assert events.status == 200
                usage = (await _usage(two, admin)).json()
                assert (usage["tenant"], usage["workers"]) == ("default", 2)
                alice = "default/user:alice"
                assert usage["shares"] == [{"backend": "lamp", "principal": alice, "running": 2, "waiting": 0}]
                assert usage["open"] == [{"principal": alice, "streams": 1, "subscriptions": 0}]
                # initialize, notifications/initialized and two calls, summed over both workers.
                counts = {(row["limit"], *row["of"]): row["taken"] for row in usage["limits"]}
                assert counts == {("calls", alice): 4, ("all",): 4}
                arguments = ("usage", "--json", "--url", one.base, "--token")
                shown, printed, refused = await asyncio.gather(
                    asyncio.to_thread(command, tmp_path, "usage", "--url", one.base, GATEHOUSE_TOKEN=admin),
                    asyncio.to_thread(command, tmp_path, *arguments, admin),
                    asyncio.to_thread(command, tmp_path, *arguments, other_key),
                )
                assert "4 of 600" in shown.stdout, shown.stderr
                assert "2 workers" in shown.stdout
                assert json.loads(printed.stdout) == usage
                assert (refused.returncode != 0, "mcp:admin" in refused.stderr) == (True, True)
            for number in (1, 2):
                await client.post(one, {"method": "notifications/cancelled", "params": {"requestId": number}})
            assert (await first.next())["error"]["code"] == (await second.next())["error"]["code"] == -32800


async def test_operator_api_rate_limit_per_address_is_shared_by_all_replicas(pair: Pair) -> None:
    one, two = pair
    statuses: list[int] = []
    for at in (one, two) * 12:
        answer = await _usage(at, "invalid")
        statuses.append(answer.status_code)
    assert statuses == [401] * 20 + [429] * 4
    assert int(answer.headers["retry-after"]) >= 1
    assert answer.json()["error"]["kind"] == "rate_limited"
