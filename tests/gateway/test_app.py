"""The composition root: endpoints, order of the stages, and settings that change without a restart."""

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from textwrap import dedent
from typing import Any

import httpx
import pytest

from gateway.contract import Caller, Json
from gateway.errors import Fault, Kind, UnknownName
from gateway.settings import Settings
from gateway.telemetry.trace_store import FILE, find_spans
from gateway.upstream.health import LoadError
from tests.gateway.fakes import until

WriteModule = Callable[[str], str]
ORDER = (
    *("trace", "audit", "limit", "resolve", "validate", "authorize", "approve"),
    *("task", "guard", "deadline", "share", "dispatch"),
)

PLAIN = """
    from contextlib import asynccontextmanager
    from mcp.server.mcpserver import MCPServer
    events = []
    @asynccontextmanager
    async def lifespan(server):
        events.append("in")
        yield
        events.append("out")
    server = MCPServer("plain", lifespan=lifespan)
    @server.tool()
    async def hello(name: str) -> str:
        if name == "unknown":
            raise ValueError("/srv/secret")
        return f"Hello {name}"
"""
BROKEN = PLAIN.replace('events.append("in")', 'raise ValueError("no licence")', 1)


@pytest.fixture
def write_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WriteModule]:
    """Writes a module with this text under a unique name."""
    folder = tmp_path / "modules"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    names: list[str] = []

    def write_file(text: str) -> str:
        name = f"served_{tmp_path.name.replace('-', '_')}_{len(names)}"
        (folder / f"{name}.py").write_text(dedent(text))
        names.append(name)
        return name

    yield write_file
    for name in names:
        sys.modules.pop(name, None)


def make_settings(app: Any, **changed: Any) -> Settings:
    values: Json = {"data_dir": app.settings.data_dir, "server": {"port": 0}, **changed}
    return Settings(**values)


async def tools(gateway: Any, path: str = "/mcp") -> list[str]:
    response = (await gateway.post("tools/list", path=path)).json()
    return [each["name"] for each in response["result"]["tools"]]


async def test_call_passes_every_stage_in_order(start: Any, write_module: WriteModule) -> None:
    async with start(backends={"lab": {"module": write_module(PLAIN)}}) as gateway:
        failed = await gateway.call("lab_hello", {"name": "unknown"})
        assert failed["result"]["isError"] is True
        traces = gateway.app.settings.data_dir / FILE
    (span,) = find_spans(traces, failed["result"]["_meta"]["correlation_id"])
    stages = {key.removeprefix("gatehouse.stage."): value for key, value in span.attributes.items() if ".stage." in key}
    assert tuple(stages) == ORDER
    assert all(seconds >= 0 for seconds in stages.values())
    assert sum(stages.values()) <= (span.ended - span.started) / 1e9 + 1e-6


async def test_mcp_routes_require_a_credential_and_health_does_not(gateway: Any) -> None:
    async with httpx.AsyncClient(verify=False, base_url=gateway.base) as http:
        assert (await http.get("/healthz")).status_code == 200
        assert (await http.get("/mcpx")).status_code == 404
        for path in ("/mcp", "/mcp/core", "/mcp/nowhere"):
            rejected = await http.post(path, json={})
            assert rejected.status_code == 401
            assert rejected.headers["www-authenticate"].startswith("Bearer")


async def test_every_backend_and_virtual_server_has_its_endpoint(start: Any, write_module: WriteModule) -> None:
    backends = {"lab": {"module": write_module(PLAIN)}, "core": {"module": "backends.core"}}
    servers = {"dev": {"backends": ["lab"], "names": "dotted"}}
    async with start(backends=backends, servers=servers) as gateway:
        assert await tools(gateway) == ["lab_hello", "core_ping"]
        assert await tools(gateway, "/mcp/lab") == ["hello"]
        assert await tools(gateway, "/mcp/dev") == ["lab.hello"]
        assert (await gateway.post("tools/list", path="/mcp/none")).status_code == 404


# ---- settings that change


async def test_added_changed_and_removed_backends_take_effect_immediately(
    start: Any, write_module: WriteModule
) -> None:
    first, second = write_module(PLAIN), write_module(PLAIN)
    async with start(backends={"lab": {"module": first}}) as gateway:
        app = gateway.app
        await app.apply(make_settings(app, backends={"lab": {"module": first}, "more": {"module": second}}))
        assert await tools(gateway) == ["lab_hello", "more_hello"]
        assert sys.modules[first].events == ["in"]
        await app.apply(make_settings(app, backends={"more": {"module": second, "timeout": 5}}))
        assert await tools(gateway) == ["more_hello"]
        assert (await gateway.post("tools/list", path="/mcp/lab")).status_code == 404
        await until(lambda: sys.modules[first].events == ["in", "out"])


async def test_backend_that_cannot_be_loaded_leaves_the_gateway_unchanged(
    start: Any, write_module: WriteModule
) -> None:
    first = write_module(PLAIN)
    async with start(backends={"lab": {"module": first}}) as gateway:
        app = gateway.app
        with pytest.raises(LoadError, match=r"backends\.new"):
            await app.apply(make_settings(app, backends={"new": {"module": "no_such_module_here"}}))
        assert await tools(gateway) == ["lab_hello"]
        assert "result" in await gateway.call("lab_hello", {"name": "Ann"})
        assert sys.modules[first].events == ["in"]


async def test_backend_whose_lifespan_fails_leaves_the_gateway_unchanged(start: Any, write_module: WriteModule) -> None:
    first, broken = write_module(PLAIN), write_module(BROKEN)
    async with start(backends={"lab": {"module": first}}) as gateway:
        app = gateway.app
        with pytest.raises(Exception, match="new"):
            await app.apply(make_settings(app, backends={"lab": {"module": first}, "new": {"module": broken}}))
        with pytest.raises(Exception, match="lab"):
            await app.apply(make_settings(app, backends={"lab": {"module": broken}}))
        assert app.catalogue.snapshots.keys() == {"lab"}
        assert "result" in await gateway.call("lab_hello", {"name": "Ann"})


async def test_failing_lifespan_raises_load_error(start: Any, write_module: WriteModule) -> None:
    async with start(backends={"core": {"module": "backends.core"}}) as gateway:
        app = gateway.app
        with pytest.raises(LoadError):
            await app.apply(make_settings(app, backends={"new": {"module": write_module(BROKEN)}}))


# ---- services for modules


async def caller_of(gateway: Any, key: str) -> Caller:
    return await gateway.app.keys.verify(key)


async def test_internal_call_passes_all_stages(start: Any, write_module: WriteModule) -> None:
    async with start(backends={"lab": {"module": write_module(PLAIN)}}) as gateway:
        app, alice = gateway.app, await caller_of(gateway, gateway.key)
        result = await app.internal_calls.invoke(alice, "lab.hello", {"name": "Ann"}, {"correlationId": "c-7"})
        assert result["content"][0]["text"] == "Hello Ann"
        with pytest.raises(UnknownName):
            await app.internal_calls.invoke(alice, "lab.nothing", {}, {})
        with pytest.raises(Fault) as invalid:
            await app.internal_calls.invoke(alice, "lab.hello", {"name": 7}, {})
        assert invalid.value.kind is Kind.INVALID_INPUT
        list_only = await caller_of(gateway, await gateway.new_key(scopes=("mcp:list",)))
        with pytest.raises(Fault) as denied:
            await app.internal_calls.invoke(list_only, "lab.hello", {"name": "Ann"}, {})
        assert denied.value.kind is Kind.DENIED
        assert "c-7" in gateway.log.getvalue()


async def test_caller_is_authorized_while_key_and_tenant_are_active(gateway: Any) -> None:
    app = gateway.app
    alice = await caller_of(gateway, gateway.key)
    assert await app.internal_calls.is_authorized(alice)
    await app.tenants.change("default", {"suspended": True})
    assert not await app.internal_calls.is_authorized(alice)
    await app.tenants.change("default", {"suspended": False})
    assert await app.internal_calls.is_authorized(alice)
    await app.keys.revoke(alice.credential)
    assert not await app.internal_calls.is_authorized(alice)
    assert not await app.internal_calls.is_authorized(Caller("unknown", "x"))


async def test_suspended_tenant_is_denied(gateway: Any) -> None:
    await gateway.app.tenants.change("default", {"suspended": True})
    listed = (await gateway.post("tools/list")).json()["error"]
    assert (listed["data"]["kind"], listed["message"]) == (
        "denied",
        "This tenant is suspended.",
    )
    assert "error" in await gateway.call("core_ping")


async def test_background_task_is_cancelled_at_shutdown_and_its_failure_is_logged(
    start: Any, caplog: pytest.LogCaptureFixture
) -> None:
    ended: list[str] = []

    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("endless")

    async def failing() -> None:
        raise ValueError("seen in the log")

    async with start() as gateway:
        gateway.app._tasks.spawn(endless())
        gateway.app._tasks.spawn(failing())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert "seen in the log" in caplog.text
    assert ended == ["endless"]


async def test_draining_ends_every_open_stream(start: Any) -> None:
    async with AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(start())
        http = await stack.enter_async_context(httpx.AsyncClient(verify=False, timeout=10))
        headers = {"authorization": f"Bearer {gateway.key}", "accept": "application/json, text/event-stream"}
        body = {
            "jsonrpc": "2.0",
            "id": 0,
            "method": "initialize",
            "params": {"protocolVersion": "2025-11-25", "capabilities": {}},
        }
        initialized = await http.post(gateway.url, json=body, headers=headers)
        headers["mcp-session-id"] = initialized.headers["mcp-session-id"]
        response = await stack.enter_async_context(http.stream("GET", gateway.url, headers=headers))
        lines = response.aiter_lines()
        assert await anext(lines)
        await gateway.app.drain()
        async with asyncio.timeout(5):
            async for _ in lines:
                pass


async def test_failed_start_leaves_nothing_open(start: Any, tmp_path: Path) -> None:
    with pytest.raises(LoadError):
        async with start(backends={"new": {"module": "no_such_module_here"}}):
            pass
    async with start() as gateway:
        assert "core_ping" in await tools(gateway)
