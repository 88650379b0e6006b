"""The composition root: what is served, in which order a call walks, and what changes without a restart."""

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
from gateway.telemetry.trace_store import FILE, find
from gateway.upstream.health import LoadError
from tests.gateway.fakes import until

Write = Callable[[str], str]
ORDER = (
    *("trace", "audit", "limit", "resolve", "validate", "authorize", "approve"),
    *("guard", "deadline", "share", "dispatch"),
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
        if name == "nobody":
            raise ValueError("/srv/secret")
        return f"Hello {name}"
"""
BROKEN = PLAIN.replace('events.append("in")', 'raise ValueError("no licence")', 1)


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """A module of that text, by a name of its own."""
    folder = tmp_path / "modules"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    made: list[str] = []

    def writing(text: str) -> str:
        name = f"served_{tmp_path.name.replace('-', '_')}_{len(made)}"
        (folder / f"{name}.py").write_text(dedent(text))
        made.append(name)
        return name

    yield writing
    for name in made:
        sys.modules.pop(name, None)


def settings_of(house: Any, **changed: Any) -> Settings:
    given: Json = {"data_dir": house.settings.data_dir, "server": {"port": 0}, **changed}
    return Settings(**given)


async def tools(gateway: Any, path: str = "/mcp") -> list[str]:
    answer = (await gateway.post("tools/list", path=path)).json()
    return [each["name"] for each in answer["result"]["tools"]]


async def test_a_call_walks_every_stage_in_the_written_order(start: Any, write: Write) -> None:
    async with start(backends={"lab": {"module": write(PLAIN)}}) as gateway:
        failed = await gateway.call("lab_hello", {"name": "nobody"})
        assert failed["result"]["isError"] is True
        traces = gateway.house.settings.data_dir / FILE
    (span,) = find(traces, failed["result"]["_meta"]["correlation_id"])
    stages = {key.removeprefix("gatehouse.stage."): value for key, value in span.attributes.items() if ".stage." in key}
    assert tuple(stages) == ORDER
    assert all(seconds >= 0 for seconds in stages.values())
    assert sum(stages.values()) <= (span.ended - span.started) / 1e9 + 1e-6


async def test_only_mcp_is_behind_the_credential_and_the_rest_is_plain(gateway: Any) -> None:
    async with httpx.AsyncClient(verify=False, base_url=gateway.base) as http:
        assert (await http.get("/healthz")).status_code == 200
        assert (await http.get("/mcpx")).status_code == 404
        for path in ("/mcp", "/mcp/core", "/mcp/nowhere"):
            refused = await http.post(path, json={})
            assert refused.status_code == 401
            assert refused.headers["www-authenticate"].startswith("Bearer")


async def test_every_backend_and_virtual_server_has_its_endpoint(start: Any, write: Write) -> None:
    backends = {"lab": {"module": write(PLAIN)}, "core": {"module": "backends.core"}}
    servers = {"dev": {"backends": ["lab"], "names": "dotted"}}
    async with start(backends=backends, servers=servers) as gateway:
        assert await tools(gateway) == ["lab_hello", "core_ping"]
        assert await tools(gateway, "/mcp/lab") == ["hello"]
        assert await tools(gateway, "/mcp/dev") == ["lab.hello"]
        assert (await gateway.post("tools/list", path="/mcp/none")).status_code == 404


# ---- settings that change


async def test_what_is_added_changed_or_taken_out_is_served_so_at_once(start: Any, write: Write) -> None:
    first, second = write(PLAIN), write(PLAIN)
    async with start(backends={"lab": {"module": first}}) as gateway:
        house = gateway.house
        await house.apply(settings_of(house, backends={"lab": {"module": first}, "more": {"module": second}}))
        assert await tools(gateway) == ["lab_hello", "more_hello"]
        assert sys.modules[first].events == ["in"]
        await house.apply(settings_of(house, backends={"more": {"module": second, "timeout": 5}}))
        assert await tools(gateway) == ["more_hello"]
        assert (await gateway.post("tools/list", path="/mcp/lab")).status_code == 404
        await until(lambda: sys.modules[first].events == ["in", "out"])


async def test_a_backend_that_cannot_be_loaded_changes_nothing(start: Any, write: Write) -> None:
    first = write(PLAIN)
    async with start(backends={"lab": {"module": first}}) as gateway:
        house = gateway.house
        with pytest.raises(LoadError, match=r"backends\.new"):
            await house.apply(settings_of(house, backends={"new": {"module": "no_such_module_here"}}))
        assert await tools(gateway) == ["lab_hello"]
        assert "result" in await gateway.call("lab_hello", {"name": "Ann"})
        assert sys.modules[first].events == ["in"]


async def test_a_backend_whose_lifespan_fails_changes_nothing(start: Any, write: Write) -> None:
    first, broken = write(PLAIN), write(BROKEN)
    async with start(backends={"lab": {"module": first}}) as gateway:
        house = gateway.house
        with pytest.raises(Exception, match="new"):
            await house.apply(settings_of(house, backends={"lab": {"module": first}, "new": {"module": broken}}))
        with pytest.raises(Exception, match="lab"):
            await house.apply(settings_of(house, backends={"lab": {"module": broken}}))
        assert house.catalogue.snapshots.keys() == {"lab"}
        assert "result" in await gateway.call("lab_hello", {"name": "Ann"})


async def test_a_lifespan_that_fails_is_told_as_what_cannot_be_served(start: Any, write: Write) -> None:
    async with start(backends={"core": {"module": "backends.core"}}) as gateway:
        house = gateway.house
        with pytest.raises(LoadError):
            await house.apply(settings_of(house, backends={"new": {"module": write(BROKEN)}}))


# ---- what modules may ask of the house


async def caller_of(gateway: Any, key: str) -> Caller:
    return await gateway.house.keys.verify(key)


async def test_one_tool_calls_another_through_the_whole_path(start: Any, write: Write) -> None:
    async with start(backends={"lab": {"module": write(PLAIN)}}) as gateway:
        house, alice = gateway.house, await caller_of(gateway, gateway.key)
        result = await house.inside.invoke(alice, "lab.hello", {"name": "Ann"}, {"correlationId": "c-7"})
        assert result["content"][0]["text"] == "Hello Ann"
        with pytest.raises(UnknownName):
            await house.inside.invoke(alice, "lab.nothing", {}, {})
        with pytest.raises(Fault) as invalid:
            await house.inside.invoke(alice, "lab.hello", {"name": 7}, {})
        assert invalid.value.kind is Kind.INVALID_INPUT
        weak = await caller_of(gateway, await gateway.new_key(scopes=("mcp:list",)))
        with pytest.raises(Fault) as denied:
            await house.inside.invoke(weak, "lab.hello", {"name": "Ann"}, {})
        assert denied.value.kind is Kind.DENIED
        assert "c-7" in gateway.log.getvalue()


async def test_a_caller_is_good_while_key_and_tenant_are(gateway: Any) -> None:
    house = gateway.house
    alice = await caller_of(gateway, gateway.key)
    assert await house.inside.good(alice)
    await house.tenants.change("default", {"suspended": True})
    assert not await house.inside.good(alice)
    await house.tenants.change("default", {"suspended": False})
    assert await house.inside.good(alice)
    await house.keys.revoke(alice.credential)
    assert not await house.inside.good(alice)
    assert not await house.inside.good(Caller("nobody", "x"))


async def test_a_suspended_tenant_is_served_nothing(gateway: Any) -> None:
    await gateway.house.tenants.change("default", {"suspended": True})
    listed = (await gateway.post("tools/list")).json()["error"]
    assert (listed["data"]["kind"], listed["message"]) == ("denied", "This tenant is suspended.")
    assert "error" in await gateway.call("core_ping")


async def test_work_that_outlives_a_call_is_cancelled_at_the_end_and_its_failure_is_seen(
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
        gateway.house._tasks.spawn(endless())
        gateway.house._tasks.spawn(failing())
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
        opened = await http.post(gateway.url, json=body, headers=headers)
        headers["mcp-session-id"] = opened.headers["mcp-session-id"]
        response = await stack.enter_async_context(http.stream("GET", gateway.url, headers=headers))
        lines = response.aiter_lines()
        assert await anext(lines)
        await gateway.house.drain()
        async with asyncio.timeout(5):
            async for _ in lines:
                pass


async def test_a_house_that_cannot_be_built_leaves_nothing_open(start: Any, tmp_path: Path) -> None:
    with pytest.raises(LoadError):
        async with start(backends={"new": {"module": "no_such_module_here"}}):
            pass
    async with start() as gateway:
        assert "core_ping" in await tools(gateway)
