"""`/metrics`: who may read it, and that what it says is true of a running gateway."""

import asyncio
from pathlib import Path
from typing import Any

import httpx

from gateway.runner import Sockets, _serve_operators, listen_at


async def get(url: str, key: str | None = None) -> httpx.Response:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    async with httpx.AsyncClient(verify=False) as http:
        return await http.get(url, headers=headers)


async def test_on_loopback_the_metrics_are_free_and_tell_what_happened(start: Any) -> None:
    async with start(backends={"core": {"module": "backends.core"}}) as gateway:
        await gateway.call("core_ping")
        answer = await get(f"{gateway.base}/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = dict(line.rsplit(" ", 1) for line in answer.text.splitlines() if not line.startswith("#"))
    labels = 'tenant="default",backend="core",tool="core.ping",method="tools/call",outcome="ok"'
    assert lines[f"gatehouse_calls_total{{{labels}}}"] == "1"
    assert lines['gatehouse_backend_state{backend="core",state="up"}'] == "1"
    assert lines['gatehouse_breaker_state{backend="core"}'] == "0"
    for name in ("event_loop_lag_seconds", "streams", "parked_calls", "sessions", "audit_waiting", "calls_running"):
        assert f"gatehouse_{name}" in lines
    assert float(lines["process_resident_memory_bytes"]) > 1e6


async def test_on_a_public_address_only_an_operator_reads_them_but_for_the_operators_own_port(start: Any) -> None:
    server = {"host": "0.0.0.0", "public_url": "http://127.0.0.1", "allowed_hosts": ["127.0.0.1:*", "127.0.0.1"]}
    async with start(backends={"core": {"module": "backends.core"}}, server=server) as gateway:
        url = f"{gateway.base}/metrics"
        assert (await get(url)).status_code == 401
        assert (await get(url, gateway.key)).status_code == 403
        admin = await gateway.new_key(scopes=("mcp:admin",))
        assert (await get(url, admin)).status_code == 200
        with listen_at("127.0.0.1", 0) as ops:
            sockets = Sockets(ops, ops)
            tasks = await _serve_operators(gateway.house, sockets.ops)
            try:
                free = await get(f"http://127.0.0.1:{ops.getsockname()[1]}/metrics")
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
    assert free.status_code == 200
    assert "gatehouse_build_info" in free.text


async def test_threat_37_behind_a_proxy_on_this_machine_loopback_opens_nothing(start: Any) -> None:
    project = {"project": {"module": "backends.core:project"}}
    async with start(backends=project, server={"public_url": "https://gw.example"}) as gateway:
        async with httpx.AsyncClient(verify=False, headers={"host": "gw.example"}) as http:
            assert (await http.get(f"{gateway.base}/metrics")).status_code == 401
            admin = {"authorization": f"Bearer {await gateway.new_key(scopes=('mcp:admin',))}"}
            assert (await http.get(f"{gateway.base}/metrics", headers=admin)).status_code == 200
        answer = await gateway.post(
            "tools/call", {"name": "project_workspace_stats", "arguments": {}}, host="gw.example"
        )
        told = answer.json()["result"]["structuredContent"]["output"]
        assert told["root"].startswith(str(gateway.house.settings.files_dir)), "not the folder it was started in"
    async with start(backends=project) as gateway:
        answer = await gateway.call("project_workspace_stats")
        assert answer["result"]["structuredContent"]["output"]["root"] == str(Path.cwd())


async def test_who_asks_is_told_where_the_time_went(start: Any) -> None:
    async with start(backends={"core": {"module": "backends.core"}}) as gateway:
        plain = await gateway.post("tools/call", {"name": "core_ping", "arguments": {}})
        asked = await gateway.post("tools/call", {"name": "core_ping", "arguments": {}}, x_server_timing="1")
    assert "server-timing" not in plain.headers
    parts = dict(part.strip().split(";dur=") for part in asked.headers["server-timing"].split(","))
    assert {"trace", "authorize", "dispatch", "total"} <= parts.keys()
    assert sum(float(value) for name, value in parts.items() if name != "total") <= float(parts["total"]) + 0.1


async def test_who_asks_in_the_handshake_era_is_told_as_well(start: Any) -> None:
    async with start(backends={"core": {"module": "backends.core"}}) as gateway:
        headers = {"authorization": f"Bearer {gateway.key}", "accept": "application/json, text/event-stream"}
        client = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        begin = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": client}
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "core_ping", "arguments": {}}}
        async with httpx.AsyncClient(verify=False, headers=headers) as http:
            session = (await http.post(gateway.url, json=begin)).headers["mcp-session-id"]
            http.headers["mcp-session-id"] = session
            plain = await http.post(gateway.url, json=call)
            asked = await http.post(gateway.url, json=call, headers={"x-server-timing": "1"})
    assert "server-timing" not in plain.headers
    assert asked.json()["result"]["isError"] is False
    assert {"trace", "authorize", "dispatch", "total"} <= {
        part.strip().partition(";")[0] for part in asked.headers["server-timing"].split(",")
    }
