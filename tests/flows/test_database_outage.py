"""Authentication, policy and approvals while every database connection is reset by a proxy."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.faults.dependency_faults import postgres_endpoint, proxied_url
from tests.faults.proxy import FaultProxy

BACKENDS = {
    "core": {"module": "backends.core"},
    "danger": {"module": "tests.flows.fixtures.danger", "effects": {"drop": 3}},
}
META = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}


async def test_threat_39_without_the_database_auth_and_policy_fail_closed_and_recover(
    start: Any, postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the backend writes `dropped.log` to the working directory
    tenants = {"default": {}, "locked": {"read_only": True}}
    with FaultProxy(postgres_endpoint(postgres_url)) as proxy:
        database = {"url": proxied_url(proxy, postgres_url)}
        async with start(database=database, backends=BACKENDS, tenants=tenants) as gateway:
            locked = gateway.as_(await gateway.new_key(tenant="locked", subject="reader"))
            assert "result" in await gateway.call("core_ping")
            assert "result" in await locked.call("core_ping")
            pending = (await gateway.call("danger_drop", {"name": "it"}, META))["result"]
            assert pending["resultType"] == "input_required"
            uncached = gateway.as_(await gateway.new_key(subject="unseen"))
            foreign = gateway.as_("gth_000000000000_" + "x" * 43 + "_000000")

            proxy.set("reset")
            # Authentication: a valid key that is not cached cannot be looked up, and an invalid key is rejected.
            assert (await uncached.post("tools/list")).status_code == 503
            assert (await foreign.post("tools/list")).status_code in (401, 503)
            # Policy: cached tenant settings still apply.
            refused = (await locked.call("danger_drop", {"name": "it"}))["result"]
            assert refused["_meta"]["gatehouse/error"]["kind"] == "denied"
            # An approval fails when its use cannot be recorded.
            retry = {
                "name": "danger_drop",
                "arguments": {"name": "it"},
                "requestState": pending["requestState"],
                "inputResponses": {"approval": {"action": "accept", "content": {"approve": True}}},
                "_meta": META,
            }
            result = (await gateway.post("tools/call", retry)).json()["result"]
            assert result["_meta"]["gatehouse/error"]["kind"] == "unavailable"
            assert not (tmp_path / "dropped.log").exists()

            proxy.set("none")
            async with asyncio.timeout(20):
                while (await uncached.post("tools/list")).status_code != 200:
                    await asyncio.sleep(0.05)
            assert (await foreign.post("tools/list")).status_code == 401
            result = (await gateway.post("tools/call", retry)).json()["result"]
            assert not result.get("isError"), result
            assert (tmp_path / "dropped.log").read_text() == "it\n"
