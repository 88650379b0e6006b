"""Tasks of remote servers of 2026-07-28: usable by clients that can use them, run to their end for the others."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from tests.conftest import Running, Start
from tests.flows.killable_server import killable_server
from tests.flows.replica_client import HandshakeClient
from tests.flows.task_client import CAPABLE, EXTENSION, call_modern, request, request_modern, wait_modern

Json = dict[str, Any]


@pytest.fixture
async def gateway(start: Start) -> AsyncIterator[Running]:
    with killable_server("-m", "tests.conformance.task_backend") as server:
        await server.wait_until_listening()
        entry = {"url": f"http://127.0.0.1:{server.port}/mcp", "allow_private": True}
        async with start(backends={"far": entry}) as running:
            await running.wait_for_tool("far_slow_compute")
            yield running


async def test_task_id_of_the_server_is_replaced_and_its_task_is_found(gateway: Running) -> None:
    created = (await call_modern(gateway, "far_slow_compute", {"seconds": 0.1, "label": "x"}))["result"]
    assert (created["resultType"], created["ttlMs"]) == ("task", 600_000)
    assert created["taskId"].startswith("v1.")
    task = await wait_modern(gateway, created["taskId"])
    assert task["result"]["content"][0]["text"] == "computed x"


async def test_another_principal_cannot_use_the_task_of_a_server(gateway: Running) -> None:
    id = (await call_modern(gateway, "far_slow_compute", {"seconds": 60, "label": "x"}))["result"]["taskId"]
    other = gateway.as_(await gateway.new_key(subject="mallory"))
    assert (await request_modern(other, "tasks/cancel", id))["error"]["code"] == -32602
    assert (await wait_modern(gateway, id, "working"))["status"] == "working"


async def test_caller_that_lost_access_to_the_backend_loses_its_tasks(gateway: Running) -> None:
    id = (await call_modern(gateway, "far_slow_compute", {"seconds": 60, "label": "x"}))["result"]["taskId"]
    await gateway.app.tenants.change("default", {"backends": ["none"]})
    assert "error" in await request_modern(gateway, "tasks/get", id)
    await gateway.app.tenants.change("default", {"backends": ["*"]})
    assert (await request_modern(gateway, "tasks/get", id))["result"]["status"] == "working"


async def test_task_runs_to_its_end_for_a_client_of_the_handshake_era(gateway: Running) -> None:
    async with httpx.AsyncClient(timeout=20, verify=False) as http:
        client = HandshakeClient(http, gateway.key)
        await client.initialize(gateway, elicitation={})
        result = (await request(client, gateway, "tools/call", name="far_failing_job", arguments={}))["result"]
        assert result["content"][0]["text"] == "This job always fails."
        async with client.call(gateway, 4, "far_confirm_delete", {"filename": "a.txt"}) as events:
            asked = await events.next()
            assert asked["params"]["message"] == "Delete a.txt?"
            answer = {"action": "accept", "content": {"confirm": True}}
            await client.post(gateway, {"id": asked["id"], "result": answer})
            assert "confirmed" in (await events.next())["result"]["content"][0]["text"]


async def test_extension_is_not_offered_to_clients_of_the_handshake_era(gateway: Running) -> None:
    capabilities = (await gateway.post("server/discover")).json()["result"]["capabilities"]
    assert EXTENSION in capabilities["extensions"]
    async with httpx.AsyncClient(timeout=20, verify=False) as http:
        client = HandshakeClient(http, gateway.key)
        await client.initialize(gateway)
        tools = (await request(client, gateway, "tools/list"))["result"]["tools"]
        assert not any("execution" in tool for tool in tools)


async def test_listening_client_is_notified_of_the_task_of_a_server(gateway: Running) -> None:
    id = (await call_modern(gateway, "far_confirm_delete", {"filename": "b"}))["result"]["taskId"]
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", **CAPABLE}
    params = {"notifications": {"taskIds": [id]}, "_meta": meta}
    message = {"jsonrpc": "2.0", "id": "L", "method": "subscriptions/listen", "params": params}
    headers = {
        "authorization": f"Bearer {gateway.key}",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "subscriptions/listen",
    }
    async with httpx.AsyncClient(timeout=20, verify=False) as http:
        async with http.stream("POST", gateway.url, json=message, headers=headers) as response, asyncio.timeout(15):
            events = (json.loads(line[5:]) async for line in response.aiter_lines() if line.startswith("data:"))
            assert (await anext(events))["params"]["notifications"]["taskIds"] == [id]
            event = await anext(events)
            assert (event["method"], event["params"]["taskId"]) == ("notifications/tasks", id)
            assert event["params"]["status"] == "input_required"
            answer = {"confirm": {"action": "accept", "content": {"confirm": True}}}
            await request_modern(gateway, "tasks/update", id, inputResponses=answer)
            while event["params"]["status"] != "completed":
                event = await anext(events)
