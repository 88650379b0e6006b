"""Calls of any backend become tasks of the gateway: for clients that ask for one, or that can use one."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from tests.conftest import Running, Start
from tests.flows.replica_client import HandshakeClient
from tests.flows.task_client import (
    CAPABLE,
    EXTENSION,
    call_modern,
    request,
    request_modern,
    wait_handshake,
    wait_modern,
)

Json = dict[str, Any]
SLOW = {"slow": {"module": "tests.flows.fixtures.gated"}}


@pytest.fixture
async def gateway(start: Start) -> AsyncIterator[Running]:
    async with start(backends=SLOW, tasks={"after": 0.05}) as running:
        yield running


@pytest.fixture
async def client(gateway: Running) -> AsyncIterator[HandshakeClient]:
    async with httpx.AsyncClient(timeout=20, verify=False) as http:
        client = HandshakeClient(http, gateway.key)
        await client.initialize(gateway, elicitation={})
        yield client


# ---- 2026-07-28 ----


async def test_slow_call_of_a_capable_client_becomes_a_task_and_its_result_is_fetched_later(gateway: Running) -> None:
    created = (await call_modern(gateway, "slow_work", {"name": "a"}))["result"]
    assert created["resultType"] == "task"
    assert created["status"] == "working"
    assert len(created["taskId"]) <= 512
    assert all(" " < char < "\x7f" for char in created["taskId"])
    assert created["ttlMs"] == 86_400_000
    await gateway.call("slow_finish", {"name": "a"})
    task = await wait_modern(gateway, created["taskId"])
    assert task["status"] == "completed"
    assert task["taskId"] == created["taskId"]
    assert task["result"]["content"][0]["text"] == "a done"


async def test_call_that_ends_in_time_is_answered_as_before(gateway: Running) -> None:
    await gateway.call("slow_finish", {"name": "early"})
    result = (await call_modern(gateway, "slow_work", {"name": "early"}))["result"]
    assert (result["resultType"], result["content"][0]["text"]) == ("complete", "early done")


async def test_slow_call_of_a_client_without_the_extension_is_answered_on_its_connection(gateway: Running) -> None:
    waiting = asyncio.create_task(gateway.call("slow_work", {"name": "plain"}))
    await gateway.call("slow_started_work", {"name": "plain"})
    await gateway.call("slow_finish", {"name": "plain"})
    assert (await waiting)["result"]["resultType"] == "complete"


async def test_progress_of_a_task_is_its_status_message_and_is_kept(gateway: Running) -> None:
    created = (await call_modern(gateway, "slow_work", {"name": "p"}, progressToken=1))["result"]
    await gateway.call("slow_finish", {"name": "p"})
    task = await wait_modern(gateway, created["taskId"])
    assert task["statusMessage"] == "p is almost done"
    assert task["_meta"]["gatehouse/progress"] == {"progress": 2, "total": 2, "message": "p is almost done"}


async def test_input_that_the_backend_asks_for_becomes_input_required(gateway: Running) -> None:
    created = (await call_modern(gateway, "slow_ask", {"name": "i"}))["result"]
    await gateway.call("slow_finish", {"name": "i"})
    task = await wait_modern(gateway, created["taskId"], "input_required")
    ((key, asked),) = task["inputRequests"].items()
    assert asked["params"]["message"] == "What is your name?"
    answer = {key: {"action": "accept", "content": {"name": "Ada"}}, "unknown": {"action": "accept"}}
    assert (await request_modern(gateway, "tasks/update", created["taskId"], inputResponses=answer))["result"][
        "resultType"
    ] == "complete"
    task = await wait_modern(gateway, created["taskId"])
    assert task["result"]["content"][0]["text"] == "Hello Ada"


async def test_cancelled_task_ends_as_cancelled_and_its_call_stops(gateway: Running) -> None:
    created = (await call_modern(gateway, "slow_work", {"name": "c"}))["result"]
    ack = (await request_modern(gateway, "tasks/cancel", created["taskId"]))["result"]
    assert set(ack) <= {"resultType", "_meta"}
    assert (await wait_modern(gateway, created["taskId"]))["status"] == "cancelled"
    await gateway.call("slow_finish", {"name": "c"})
    assert (await gateway.call("slow_times", {"name": "c"}))["result"]["structuredContent"]["result"] == 0
    again = await request_modern(gateway, "tasks/cancel", created["taskId"])
    assert again["result"]["resultType"] == "complete"


async def test_task_of_a_failing_tool_is_completed_with_an_error_result(gateway: Running) -> None:
    created = (await call_modern(gateway, "slow_fail", {"name": "f"}))["result"]
    await gateway.call("slow_finish", {"name": "f"})
    task = await wait_modern(gateway, created["taskId"])
    assert (task["status"], task["result"]["isError"]) == ("completed", True)


async def test_refused_arguments_are_an_answer_and_not_a_task(gateway: Running) -> None:
    result = (await call_modern(gateway, "slow_work", {"name": 3}))["result"]
    assert result["isError"] is True
    assert "taskId" not in result


async def test_tasks_are_advertised_where_a_tool_can_become_one(gateway: Running, start: Start) -> None:
    capabilities = (await gateway.post("server/discover")).json()["result"]["capabilities"]
    assert EXTENSION in capabilities["extensions"]


async def test_another_principal_cannot_use_a_task_id(gateway: Running) -> None:
    created = (await call_modern(gateway, "slow_work", {"name": "mine"}))["result"]
    other = gateway.as_(await gateway.new_key(subject="mallory"))
    for method in ("tasks/get", "tasks/update", "tasks/cancel"):
        error = (await request_modern(other, method, created["taskId"], inputResponses={}))["error"]
        assert error["code"] == -32602, method
    assert (await wait_modern(gateway, created["taskId"], "working"))["status"] == "working"


async def test_requests_about_tasks_need_the_extension_and_a_matching_name_header(gateway: Running) -> None:
    created = (await call_modern(gateway, "slow_work", {"name": "h"}))["result"]
    id = created["taskId"]
    bare = {"io.modelcontextprotocol/clientCapabilities": {}}
    missing = await request_modern(gateway, "tasks/get", id, bare)
    assert missing["error"]["code"] == -32021
    assert EXTENSION in missing["error"]["data"]["requiredCapabilities"]["extensions"]
    wrong = await gateway.post("tasks/get", {"taskId": id, "_meta": CAPABLE}, mcp_name="other")
    assert wrong.json()["error"]["code"] == -32020
    for removed in ("tasks/list", "tasks/result"):
        answer = await gateway.post(removed, {"taskId": id, "_meta": CAPABLE}, mcp_name=id)
        assert answer.json()["error"]["code"] == -32601


# ---- 2025-11-25 ----


async def test_client_that_asks_for_a_task_gets_one_at_once(gateway: Running, client: HandshakeClient) -> None:
    call: Json = {"name": "slow_work", "arguments": {"name": "t"}, "task": {"ttl": 60_000}}
    task = (await request(client, gateway, "tools/call", **call))["result"]["task"]
    assert (task["status"], task["ttl"]) == ("working", 60_000)
    listed = (await request(client, gateway, "tasks/list"))["result"]["tasks"]
    assert [each["taskId"] for each in listed] == [task["taskId"]]
    waiting = asyncio.create_task(request(client, gateway, "tasks/result", taskId=task["taskId"]))
    await gateway.call("slow_finish", {"name": "t"})
    result = (await waiting)["result"]
    assert result["content"][0]["text"] == "t done"
    assert result["_meta"]["io.modelcontextprotocol/related-task"] == {"taskId": task["taskId"]}
    assert (await wait_handshake(client, gateway, task["taskId"]))["status"] == "completed"


async def test_task_of_a_tool_without_support_is_refused(gateway: Running, client: HandshakeClient) -> None:
    answer = await request(client, gateway, "tools/call", name="slow_quick", arguments={"name": "q"}, task={})
    assert answer["error"]["code"] == -32601


async def test_cancelling_twice_is_an_error_in_the_handshake_era(gateway: Running, client: HandshakeClient) -> None:
    call: Json = {"name": "slow_work", "arguments": {"name": "cc"}, "task": {}}
    id = (await request(client, gateway, "tools/call", **call))["result"]["task"]["taskId"]
    assert (await request(client, gateway, "tasks/cancel", taskId=id))["result"]["status"] == "cancelled"
    assert (await request(client, gateway, "tasks/cancel", taskId=id))["error"]["code"] == -32602


async def test_failed_tool_is_a_failed_task_and_its_result_is_the_tool_error(
    gateway: Running, client: HandshakeClient
) -> None:
    call: Json = {"name": "slow_fail", "arguments": {"name": "ff"}, "task": {}}
    id = (await request(client, gateway, "tools/call", **call))["result"]["task"]["taskId"]
    await gateway.call("slow_finish", {"name": "ff"})
    assert (await wait_handshake(client, gateway, id))["status"] == "failed"
    assert (await request(client, gateway, "tasks/result", taskId=id))["result"]["isError"] is True


async def test_waiting_result_request_asks_the_client(gateway: Running, client: HandshakeClient) -> None:
    call: Json = {"name": "slow_ask", "arguments": {"name": "ia"}, "task": {}}
    id = (await request(client, gateway, "tools/call", **call))["result"]["task"]["taskId"]
    await gateway.call("slow_finish", {"name": "ia"})
    await wait_handshake(client, gateway, id, "input_required")
    async with client.send(gateway, 9, "tasks/result", {"taskId": id}) as events:
        asked = await events.next()
        assert asked["method"] == "elicitation/create"
        assert asked["params"]["_meta"]["io.modelcontextprotocol/related-task"] == {"taskId": id}
        await client.post(gateway, {"id": asked["id"], "result": {"action": "accept", "content": {"name": "Bo"}}})
        assert (await events.next())["result"]["content"][0]["text"] == "Hello Bo"


async def test_tools_list_says_which_tools_support_tasks(gateway: Running, client: HandshakeClient) -> None:
    tools = {each["name"]: each for each in (await request(client, gateway, "tools/list"))["result"]["tools"]}
    assert tools["slow_work"]["execution"] == {"taskSupport": "optional"}
    assert "execution" not in tools["slow_quick"]
    modern = (await gateway.post("tools/list")).json()["result"]["tools"]
    assert not any("execution" in each for each in modern)
