"""Accounts at real servers: one of the TypeScript SDK with its own OAuth, and a second Gatehouse."""

import asyncio
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.peers import npm
from tests.peers.account_user import add_user

TENANTS: dict[str, Any] = {"default": {}, "globex": {}}


@pytest.fixture(scope="module")
def sdk_server() -> Iterator[str]:
    """The URL of a running server of the TypeScript SDK that wants an account of each user."""
    script = Path(npm.__file__).with_name("account_sdk.mjs")
    command = [str(npm.NODE), str(script), str(npm.install_package(npm.SDK))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["url"]
        process.stdin.close()


async def test_users_of_two_tenants_call_a_typescript_server_each_with_the_own_account(
    start: Any, sdk_server: str
) -> None:
    entry = {"url": sdk_server, "allow_private": True, "account": {"oauth": {}}}
    base = sdk_server.removesuffix("/mcp")
    async with start(backends={"hub": entry}, tenants=TENANTS) as gateway, httpx.AsyncClient(timeout=30) as http:
        callers = {}
        for tenant, name in (("default", "alice"), ("default", "bob"), ("globex", "alice")):
            await http.get(f"{base}/login/{tenant}-{name}")
            user = await add_user(gateway, tenant, name)
            page = await user.connect(f"{gateway.base}/accounts/connect/hub")
            assert "hub is connected" in page.text, page.text
            callers[f"{tenant}-{name}"] = gateway.as_(await gateway.new_key(tenant, name)), user
        for _ in range(2):
            for login, (caller, _) in callers.items():
                await caller.wait_for_tool("hub_whoami")
                assert (await caller.call("hub_whoami"))["result"]["content"][0]["text"] == login
            await http.get(f"{base}/expire")  # the second round refreshes, and the server rotates
        for _, user in callers.values():
            await user.submit(await user.open(f"{gateway.base}/accounts"), action="/accounts/disconnect/hub")
        assert (await http.get(f"{base}/count")).json() == {"tokens": 0, "refresh": 0}


async def test_users_of_one_gateway_connect_accounts_of_a_second_gateway(run: Any, tmp_path: Path) -> None:
    core = {"core": {"module": "backends.core"}}
    async with run(tmp_path / "far", backends=core) as far:
        entry = {"url": far.url, "allow_private": True, "account": {"oauth": {}}}
        async with run(tmp_path / "near", backends={"far": entry}) as near:
            for name in ("alice", "bob"):
                user = await add_user(near, "default", name)
                await add_user(far, "default", name)  # the same name and password there
                page = await user.connect(f"{near.base}/accounts/connect/far")
                assert "far is connected" in page.text, page.text
                caller = near.as_(await near.new_key("default", name))
                await caller.wait_for_tool("far_core_ping")
                answer = await caller.call("far_core_ping")
                assert not answer["result"].get("isError"), answer
            principals = await _principals(far)
            assert {"default/user:alice", "default/user:bob"} <= principals


async def _principals(gateway: Any) -> set[str]:
    """Who has called core_ping at this gateway, according to its log."""
    async with asyncio.timeout(10):
        while True:
            lines = [json.loads(line) for line in gateway.log.getvalue().splitlines()]
            seen = {str(line.get("principal")) for line in lines if "core.ping" in json.dumps(line)}
            if len(seen) >= 2:
                return seen
            await asyncio.sleep(0.05)
