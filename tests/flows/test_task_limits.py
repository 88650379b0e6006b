"""Bounds of tasks: quotas, retention, suspended tenants, deleted users."""

import asyncio
import sqlite3
import time
from contextlib import closing
from typing import Any

import httpx

from tests.conftest import Running, Start
from tests.flows.replica_client import HandshakeClient
from tests.flows.task_client import call_modern, request, request_modern, wait_modern

Json = dict[str, Any]
SLOW = {"slow": {"module": "tests.flows.fixtures.gated"}}


async def _ask_for_task(gateway: Running, name: str, **task: Any) -> Json:
    async with httpx.AsyncClient(timeout=20, verify=False) as http:
        client = HandshakeClient(http, gateway.key)
        await client.initialize(gateway)
        call: Json = {"name": "slow_work", "arguments": {"name": name}, "task": task}
        return (await request(client, gateway, "tools/call", **call))["result"]


def _rows(gateway: Running) -> list[Any]:
    with closing(sqlite3.connect(gateway.app.settings.data_dir / "gatehouse.db")) as database:
        return database.execute("SELECT * FROM tasks").fetchall()


async def test_task_above_the_quota_of_its_principal_is_refused(start: Start) -> None:
    async with start(backends=SLOW, tasks={"per_principal": 1}) as gateway:
        assert "task" in await _ask_for_task(gateway, "one")
        refused = await _ask_for_task(gateway, "two")
        assert refused["isError"] is True
        assert refused["_meta"]["gatehouse/error"]["kind"] == "rate_limited"
        other = gateway.as_(await gateway.new_key(subject="bob"))
        assert "task" in await _ask_for_task(other, "three")


async def test_slow_call_above_the_quota_is_answered_on_its_connection(start: Start) -> None:
    async with start(backends=SLOW, tasks={"per_principal": 1, "after": 0.05}) as gateway:
        assert (await call_modern(gateway, "slow_work", {"name": "one"}))["result"]["resultType"] == "task"
        waiting = asyncio.create_task(call_modern(gateway, "slow_work", {"name": "two"}))
        await gateway.call("slow_started_work", {"name": "two"})
        await gateway.call("slow_finish", {"name": "two"})
        assert (await waiting)["result"]["content"][0]["text"] == "two done"


async def test_result_that_exceeds_the_space_of_the_tenant_is_not_kept_and_the_task_says_so(start: Start) -> None:
    async with start(backends=SLOW, tasks={"bytes_per_tenant": 2000, "after": 0.05}) as gateway:
        name = "n" * 600
        id = (await call_modern(gateway, "slow_work", {"name": name}))["result"]["taskId"]
        await gateway.call("slow_finish", {"name": name})
        task = await wait_modern(gateway, id)
        assert task["status"] == "failed"
        assert task["error"]["data"]["kind"] == "too_large"


async def test_expired_task_is_unknown(start: Start) -> None:
    async with start(backends=SLOW, tasks={"after": 0.05, "ttl": 1}) as gateway:
        id = (await call_modern(gateway, "slow_work", {"name": "old"}))["result"]["taskId"]
        expires = time.monotonic() + 10
        while "result" in await request_modern(gateway, "tasks/get", id):
            assert time.monotonic() < expires
            await asyncio.sleep(0.05)
        assert (await request_modern(gateway, "tasks/get", id))["error"]["code"] == -32602


async def test_threat_60_task_cannot_be_used_by_another_principal_or_tenant(start: Start) -> None:
    async with start(backends=SLOW, tasks={"after": 0.05}, tenants={"default": {}, "other": {}}) as gateway:
        id = (await call_modern(gateway, "slow_work", {"name": "secret"}))["result"]["taskId"]
        same_tenant = gateway.as_(await gateway.new_key(subject="mallory"))
        same_name = gateway.as_(await gateway.new_key(tenant="other", subject="alice"))
        for other in (same_tenant, same_name):
            for method in ("tasks/get", "tasks/update", "tasks/cancel"):
                answer = await request_modern(other, method, id, inputResponses={})
                assert answer["error"]["code"] == -32602, method
            forged = id[:-2] + ("AA" if id[-2:] != "AA" else "BB")
            assert (await request_modern(other, "tasks/get", forged))["error"]["code"] == -32602
        assert (await wait_modern(gateway, id, "working"))["status"] == "working"


async def test_threat_60_arguments_and_results_cannot_be_read_from_the_database(start: Start) -> None:
    async with start(backends=SLOW, tasks={"after": 0.05}) as gateway:
        id = (await call_modern(gateway, "slow_work", {"name": "classified"}))["result"]["taskId"]
        await gateway.call("slow_finish", {"name": "classified"})
        await wait_modern(gateway, id)
        assert "classified" not in repr(_rows(gateway))


async def test_threat_61_task_of_a_suspended_tenant_stops(start: Start) -> None:
    async with start(backends=SLOW, tasks={"after": 0.05}) as gateway:
        id = (await call_modern(gateway, "slow_work", {"name": "s"}))["result"]["taskId"]
        await gateway.app.tenants.change("default", {"suspended": True})
        async with asyncio.timeout(15):
            while [row[7] for row in _rows(gateway)] != ["failed"]:
                await asyncio.sleep(0.05)
        assert (await request_modern(gateway, "tasks/get", id)).get("result") is None
        await gateway.app.tenants.change("default", {"suspended": False})
        task = await wait_modern(gateway, id)
        assert task["error"]["data"]["kind"] == "denied"


async def test_threat_61_task_of_a_revoked_key_stops(start: Start) -> None:
    async with start(backends=SLOW, tasks={"after": 0.05}) as gateway:
        key, info = await gateway.app.keys.create("default", "leaver")
        await call_modern(gateway.as_(key), "slow_work", {"name": "k"})
        await gateway.app.keys.revoke(info.id)
        async with asyncio.timeout(15):
            while [row[7] for row in _rows(gateway)] != ["failed"]:
                await asyncio.sleep(0.05)


async def test_threat_61_deleting_a_user_deletes_their_tasks_and_stops_them(start: Start) -> None:
    async with start(backends=SLOW, tasks={"after": 0.05}) as gateway:
        users = gateway.app.identity.users
        await users.put("default", "dora", None, ["mcp:list", "mcp:call", "mcp:call:write"])
        dora = gateway.as_(await gateway.new_key(subject="dora"))
        await call_modern(dora, "slow_work", {"name": "d"})
        assert len(_rows(gateway)) == 1
        await users.remove("default", "dora")
        assert _rows(gateway) == []
        async with asyncio.timeout(15):
            while gateway.app.tasks.running:
                await asyncio.sleep(0.05)
        await gateway.call("slow_finish", {"name": "d"})
        assert (await gateway.call("slow_times", {"name": "d"}))["result"]["structuredContent"]["result"] == 0
