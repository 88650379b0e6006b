"""`/api/v1/calls`, `/api/v1/traffic` and `gatehouse top`: finished and running calls, for operators of their tenant."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
from typer.testing import CliRunner, Result

from gateway.cli.main import app
from tests.conftest import Running

BACKENDS = {"core": {"module": "backends.core"}, "slow": {"module": "tests.flows.fixtures.slow"}}
ADMIN = ("mcp:admin",)


async def get(gateway: Running, key: str, route: str = "calls", **query: Any) -> httpx.Response:
    async with httpx.AsyncClient(verify=False) as http:
        headers = {"authorization": f"Bearer {key}"}
        return await http.get(f"{gateway.base}/api/v1/{route}", params=query, headers=headers)


async def top(*arguments: str) -> Result:
    return await asyncio.to_thread(CliRunner().invoke, app, ["top", *arguments], env={"GATEHOUSE_TOKEN": ""})


async def test_finished_and_running_calls_are_visible_to_operators_of_their_tenant(start: Any, tmp_path: Path) -> None:
    tenants = {"default": {}, "other": {}}
    console = {"organisation": ["other/group:platform"]}
    async with start(backends=BACKENDS, tenants=tenants, console=console) as gateway:
        admin = await gateway.new_key(scopes=ADMIN)
        other_tenant = await gateway.new_key("other", scopes=ADMIN)
        organisation_admin = await gateway.new_key("other", "eve", scopes=ADMIN, groups=("platform",))
        await gateway.call("core_ping")
        failed = (await gateway.call("core_ping", {"odd": "\x1b[2J"}))["error"]["data"]["correlation_id"]
        await gateway.app.audit.flush()

        found = (await get(gateway, admin, id=failed)).json()["calls"]
        assert [(call["target"], call["outcome"], call["tenant"]) for call in found] == [
            ("core.ping", "invalid_input", "default")
        ]
        traffic = (await get(gateway, admin, "traffic", minutes=5)).json()
        assert (traffic["calls"], sum(traffic["failed"]), traffic["tools"][0]["target"]) == (2, 1, "core.ping")
        assert (await get(gateway, organisation_admin, id=failed)).json()["calls"] == found
        for query in ({}, {"id": failed}, {"tenant": "other"}):
            assert (await get(gateway, other_tenant, **query)).json() == {"calls": [], "running": []}
        assert (await get(gateway, other_tenant, tenant="default")).status_code == 404
        assert (await get(gateway, other_tenant, "traffic")).json()["calls"] == 0
        assert (await get(gateway, admin, limit="x")).status_code == 400
        assert (await get(gateway, gateway.key)).status_code == 403

        waiting = asyncio.create_task(gateway.call("slow_wait", {"seconds": 60}))
        async with asyncio.timeout(20):
            while not (running := (await get(gateway, admin)).json()["running"]):
                await asyncio.sleep(0.01)
        assert [call["target"] for call in running] == ["slow.wait"]
        assert (await get(gateway, other_tenant)).json()["running"] == []

        shown = await top("--url", gateway.url, "--token", admin)
        for text in ("core.ping", "invalid_input", "1 failed", failed, "in progress", "slow.wait"):
            assert text in shown.stdout
        rejected = await top("--url", gateway.url, "--token", gateway.key)
        assert (rejected.exit_code, rejected.stdout) == (3, "")
        settings = tmp_path / "gatehouse.yaml"
        settings.write_text(json.dumps({"data_dir": str(tmp_path / "data")}))
        stored = json.loads((await top("--config", str(settings), "--json")).stdout)
        assert failed in [call["correlation_id"] for call in stored["calls"]]
        waiting.cancel()
