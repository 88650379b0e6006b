"""Any replica answers for a task, and takes over the tasks of a replica that stops."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import Running
from tests.flows.replica_client import HandshakeClient
from tests.flows.task_client import CAPABLE, call_modern, request, request_modern, wait_handshake, wait_modern

Json = dict[str, Any]
Pair = tuple[Running, Running]
GATED: Json = {"module": "tests.flows.fixtures.gated"}


def _settings(valkey_url: str, prefix: str) -> Json:
    return {
        "backends": {"slow": GATED, "safe": {**GATED, "effects": {"work": 1}}},
        "bus": {"url": valkey_url, "prefix": prefix},
        "tasks": {"after": 0.05},
    }


@pytest.fixture
async def pair(run: Any, tmp_path: Path, valkey_url: str, prefix: str) -> AsyncIterator[Pair]:
    settings = _settings(valkey_url, prefix)
    async with run(tmp_path, **settings) as one, run(tmp_path, **settings) as two:
        yield one, two.as_(one.key)


async def test_task_of_one_replica_is_answered_and_read_at_another(pair: Pair) -> None:
    one, two = pair
    id = (await call_modern(one, "slow_ask", {"name": "r"}))["result"]["taskId"]
    await one.call("slow_finish", {"name": "r"})
    task = await wait_modern(two, id, "input_required")
    (key,) = task["inputRequests"]
    answer = {key: {"action": "accept", "content": {"name": "Ada"}}}
    await request_modern(two, "tasks/update", id, inputResponses=answer)
    assert (await wait_modern(two, id))["result"]["content"][0]["text"] == "Hello Ada"


async def test_task_of_one_replica_is_cancelled_at_another(pair: Pair) -> None:
    one, two = pair
    id = (await call_modern(one, "slow_work", {"name": "rc"}))["result"]["taskId"]
    await request_modern(two, "tasks/cancel", id)
    assert (await wait_modern(one, id))["status"] == "cancelled"


async def test_listening_client_is_notified_of_a_task_of_another_replica(pair: Pair) -> None:
    one, two = pair
    id = (await call_modern(one, "slow_work", {"name": "rn"}))["result"]["taskId"]
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", **CAPABLE}
    params = {"notifications": {"taskIds": [id, "v1.someone-elses"]}, "_meta": meta}
    message = {"jsonrpc": "2.0", "id": "L", "method": "subscriptions/listen", "params": params}
    headers = {
        "authorization": f"Bearer {two.key}",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "subscriptions/listen",
    }
    async with httpx.AsyncClient(timeout=20, verify=False) as http:
        async with http.stream("POST", two.url, json=message, headers=headers) as response, asyncio.timeout(15):
            events = (json.loads(line[5:]) async for line in response.aiter_lines() if line.startswith("data:"))
            acknowledged = await anext(events)
            assert acknowledged["params"]["notifications"]["taskIds"] == [id]
            await one.call("slow_finish", {"name": "rn"})
            async for event in events:
                assert event["method"] == "notifications/tasks"
                assert event["params"]["taskId"] == id
                if event["params"]["status"] == "completed":
                    break


async def test_client_of_the_handshake_era_is_notified_on_its_stream(pair: Pair) -> None:
    one, two = pair
    async with httpx.AsyncClient(timeout=20, verify=False) as http:
        client = HandshakeClient(http, one.key)
        await client.initialize(one)
        async with client.listen(two) as events, asyncio.timeout(15):
            call: Json = {"name": "slow_work", "arguments": {"name": "hn"}, "task": {}}
            id = (await request(client, one, "tools/call", **call))["result"]["task"]["taskId"]
            await one.call("slow_finish", {"name": "hn"})
            while (event := await events.next())["params"].get("status") != "completed":
                assert event["method"] == "notifications/tasks/status"
            assert event["params"]["taskId"] == id


async def test_sent_call_of_a_stopped_replica_fails_and_says_that_it_may_have_happened(
    run: Any, tmp_path: Path, valkey_url: str, prefix: str
) -> None:
    settings = _settings(valkey_url, prefix)
    async with run(tmp_path, **settings) as survivor:
        async with run(tmp_path, **settings) as stopped:
            other = stopped.as_(survivor.key)
            id = (await call_modern(other, "slow_work", {"name": "lost"}))["result"]["taskId"]
        task = await wait_modern(survivor, id)
        assert task["status"] == "failed"
        assert "may have happened" in task["error"]["message"]
        assert task["error"]["data"]["retryable"] is True


async def test_idempotent_call_of_a_stopped_replica_is_sent_again_by_another(
    run: Any, tmp_path: Path, valkey_url: str, prefix: str
) -> None:
    settings = _settings(valkey_url, prefix)
    async with run(tmp_path, **settings) as survivor:
        async with run(tmp_path, **settings) as stopped:
            other = stopped.as_(survivor.key)
            id = (await call_modern(other, "safe_work", {"name": "kept"}))["result"]["taskId"]
        await survivor.call("safe_finish", {"name": "kept"})
        task = await wait_modern(survivor, id)
        assert (task["status"], task["result"]["content"][0]["text"]) == ("completed", "kept done")


async def test_waiting_result_request_at_another_replica_returns_when_the_task_ends(pair: Pair) -> None:
    one, two = pair
    async with httpx.AsyncClient(timeout=20, verify=False) as http:
        client = HandshakeClient(http, one.key)
        await client.initialize(one)
        call: Json = {"name": "slow_work", "arguments": {"name": "wr"}, "task": {}}
        id = (await request(client, one, "tools/call", **call))["result"]["task"]["taskId"]
        waiting = asyncio.create_task(request(client, two, "tasks/result", taskId=id))
        await one.call("slow_finish", {"name": "wr"})
        assert (await waiting)["result"]["content"][0]["text"] == "wr done"
        assert (await wait_handshake(client, two, id))["status"] == "completed"
