"""The database is away, behind a proxy that breaks every connection: what is not known is not let in, and not done."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.faults.away import postgres_target, through
from tests.faults.proxy import FaultProxy

BACKENDS = {
    "core": {"module": "backends.core"},
    "danger": {"module": "tests.flows.fixtures.danger", "effects": {"drop": 3}},
}
META = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}


async def test_threat_39_without_the_database_auth_and_policy_fail_closed_and_recover(
    start: Any, postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where what was dropped is written down
    tenants = {"default": {}, "locked": {"read_only": True}}
    with FaultProxy(postgres_target(postgres_url)) as proxy:
        database = {"url": through(proxy, postgres_url)}
        async with start(database=database, backends=BACKENDS, tenants=tenants) as gateway:
            locked = gateway.as_(await gateway.new_key(tenant="locked", subject="reader"))
            assert "result" in await gateway.call("core_ping")
            assert "result" in await locked.call("core_ping")
            asked = (await gateway.call("danger_drop", {"name": "it"}, META))["result"]
            assert asked["resultType"] == "input_required"
            unseen = gateway.as_(await gateway.new_key(subject="unseen"))
            foreign = gateway.as_("gth_000000000000_" + "x" * 43 + "_000000")

            proxy.set("reset")
            # Auth: a good key that this process never saw cannot be looked up, and a bad one is not let in either.
            assert (await unseen.post("tools/list")).status_code == 503
            assert (await foreign.post("tools/list")).status_code in (401, 503)
            # Policy: what is known of a tenant holds on.
            refused = (await locked.call("danger_drop", {"name": "it"}))["result"]
            assert refused["_meta"]["gatehouse/error"]["kind"] == "denied"
            # An approval whose use cannot be written down is none.
            answered = {
                "name": "danger_drop",
                "arguments": {"name": "it"},
                "requestState": asked["requestState"],
                "inputResponses": {"approval": {"action": "accept", "content": {"approve": True}}},
                "_meta": META,
            }
            said = (await gateway.post("tools/call", answered)).json()["result"]
            assert said["_meta"]["gatehouse/error"]["kind"] == "unavailable"
            assert not (tmp_path / "dropped.log").exists()

            proxy.set("none")
            async with asyncio.timeout(20):
                while (await unseen.post("tools/list")).status_code != 200:
                    await asyncio.sleep(0.05)
            assert (await foreign.post("tools/list")).status_code == 401
            said = (await gateway.post("tools/call", answered)).json()["result"]
            assert not said.get("isError"), said
            assert (tmp_path / "dropped.log").read_text() == "it\n"
