"""`/metrics` and `Server-Timing` of a running gateway: access and content."""

import asyncio
from pathlib import Path
from typing import Any

import httpx

from gateway.runner import Sockets, _serve_operators, bind


async def get(url: str, key: str | None = None) -> httpx.Response:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    async with httpx.AsyncClient(verify=False) as http:
        return await http.get(url, headers=headers)


async def test_threat_47_metrics_without_a_credential_name_no_tenant(start: Any) -> None:
    tenants = {"default": {}, "secret-customer": {}}
    async with start(backends={"core": {"module": "backends.core"}}, tenants=tenants) as gateway:
        await gateway.call("core_ping")
        await gateway.as_(await gateway.new_key("secret-customer")).call("core_ping")
        anonymous = (await get(f"{gateway.base}/metrics")).text
        assert (await get(f"{gateway.base}/metrics", gateway.key)).status_code == 403
        admin = (await get(f"{gateway.base}/metrics", await gateway.new_key(scopes=("mcp:admin",)))).text
    assert "secret-customer" not in anonymous
    assert 'gatehouse_calls_total{backend="core",tool="core.ping",method="tools/call",outcome="ok"} 2' in anonymous
    assert 'tenant="secret-customer"' in admin


async def test_metrics_on_loopback_need_no_credential_and_count_calls(start: Any) -> None:
    async with start(backends={"core": {"module": "backends.core"}}) as gateway:
        await gateway.call("core_ping")
        response = await get(f"{gateway.base}/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = dict(line.rsplit(" ", 1) for line in response.text.splitlines() if not line.startswith("#"))
    labels = 'backend="core",tool="core.ping",method="tools/call",outcome="ok"'
    assert lines[f"gatehouse_calls_total{{{labels}}}"] == "1"
    assert lines['gatehouse_backend_state{backend="core",state="up"}'] == "1"
    assert lines['gatehouse_breaker_state{backend="core"}'] == "0"
    for name in ("event_loop_lag_seconds", "streams", "parked_calls", "sessions", "audit_waiting", "calls_running"):
        assert f"gatehouse_{name}" in lines
    assert float(lines["process_resident_memory_bytes"]) > 1e6


async def test_metrics_on_a_public_address_need_the_admin_scope_except_on_the_operator_port(start: Any) -> None:
    server = {"host": "0.0.0.0", "public_url": "http://127.0.0.1", "allowed_hosts": ["127.0.0.1:*", "127.0.0.1"]}
    async with start(backends={"core": {"module": "backends.core"}}, server=server) as gateway:
        url = f"{gateway.base}/metrics"
        assert (await get(url)).status_code == 401
        assert (await get(url, gateway.key)).status_code == 403
        admin = await gateway.new_key(scopes=("mcp:admin",))
        assert (await get(url, admin)).status_code == 200
        with bind("127.0.0.1", 0) as ops:
            sockets = Sockets(ops, ops)
            tasks = await _serve_operators(gateway.app, sockets.ops)
            try:
                unauthenticated = await get(f"http://127.0.0.1:{ops.getsockname()[1]}/metrics")
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
    assert unauthenticated.status_code == 200
    assert "gatehouse_build_info" in unauthenticated.text


async def test_threat_37_loopback_behind_a_proxy_gives_no_privileges(start: Any) -> None:
    project = {"project": {"module": "backends.core:project"}}
    async with start(backends=project, server={"public_url": "https://gw.example"}) as gateway:
        async with httpx.AsyncClient(verify=False, headers={"host": "gw.example"}) as http:
            assert (await http.get(f"{gateway.base}/metrics")).status_code == 401
            admin = {"authorization": f"Bearer {await gateway.new_key(scopes=('mcp:admin',))}"}
            assert (await http.get(f"{gateway.base}/metrics", headers=admin)).status_code == 200
        response = await gateway.post(
            "tools/call", {"name": "project_workspace_stats", "arguments": {}}, host="gw.example"
        )
        body = response.json()["result"]["structuredContent"]["output"]
        assert body["root"].startswith(str(gateway.app.settings.files_dir)), "must not be the working directory"
    async with start(backends=project) as gateway:
        response = await gateway.call("project_workspace_stats")
        assert response["result"]["structuredContent"]["output"]["root"] == str(Path.cwd())


async def test_server_timing_is_sent_on_request(start: Any) -> None:
    async with start(backends={"core": {"module": "backends.core"}}) as gateway:
        plain = await gateway.post("tools/call", {"name": "core_ping", "arguments": {}})
        timed = await gateway.post("tools/call", {"name": "core_ping", "arguments": {}}, x_server_timing="1")
    assert "server-timing" not in plain.headers
    parts = dict(part.strip().split(";dur=") for part in timed.headers["server-timing"].split(","))
    assert {"trace", "authorize", "dispatch", "total"} <= parts.keys()
    assert sum(float(value) for name, value in parts.items() if name != "total") <= float(parts["total"]) + 0.1


async def test_server_timing_is_sent_on_request_in_the_handshake_era(start: Any) -> None:
    async with start(backends={"core": {"module": "backends.core"}}) as gateway:
        headers = {"authorization": f"Bearer {gateway.key}", "accept": "application/json, text/event-stream"}
        client = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        begin = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": client}
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "core_ping", "arguments": {}}}
        async with httpx.AsyncClient(verify=False, headers=headers) as http:
            session = (await http.post(gateway.url, json=begin)).headers["mcp-session-id"]
            http.headers["mcp-session-id"] = session
            plain = await http.post(gateway.url, json=call)
            timed = await http.post(gateway.url, json=call, headers={"x-server-timing": "1"})
    assert "server-timing" not in plain.headers
    assert timed.json()["result"]["isError"] is False
    assert {"trace", "authorize", "dispatch", "total"} <= {
        part.strip().partition(";")[0] for part in timed.headers["server-timing"].split(",")
    }
