"""Studios and editors with several gateway processes: a call at any process reaches them wherever they connect."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
import redis.asyncio
from websockets.asyncio.client import connect

from tests.backends.roblox.fake_studio import FakeStudio, Json
from tests.flows.process import FILE, Served, modern, modern_headers, run, starting, write_settings
from tests.servers import Valkey

BACKENDS = {
    "roblox": {"module": "backends.roblox", "options": {"bridge_enabled": True}},
    "godot": {"module": "backends.godot", "options": {"roots": ["projects"], "godot_path": ""}},
}
SCOPES = ("mcp:list", "mcp:call", "mcp:call:write", "bridge:roblox", "bridge:godot")
GAME = "/home/us/meadow"


@dataclass(frozen=True)
class Replicas:
    """Two processes on one folder and one bus. `key` may call tools and connect Studios and editors."""

    folder: Path
    one: Served
    two: Served
    key: str
    bus: str

    async def call(self, at: Served, tool: str, arguments: Json | None = None) -> Json:
        params = {"name": tool, "arguments": arguments or {}}
        return await self._request(at, "tools/call", params)

    async def read(self, at: Served, uri: str) -> Json:
        return json.loads((await self._request(at, "resources/read", {"uri": uri}))["contents"][0]["text"])

    async def _request(self, at: Served, method: str, params: Json) -> Json:
        headers = {
            "authorization": f"Bearer {self.key}",
            "accept": "application/json, text/event-stream",
            **modern_headers(method, params),
        }
        async with httpx.AsyncClient(timeout=30, verify=False) as http:
            answer = await http.post(at.url, json=modern(method, params), headers=headers)
        text = answer.text
        if answer.headers["content-type"].startswith("text/event-stream"):
            text = [line[6:] for line in text.splitlines() if line.startswith("data: ")][-1]
        message = json.loads(text)
        assert "result" in message, message
        return message["result"]


@pytest.fixture(scope="module")
def replicas(tmp_path_factory: pytest.TempPathFactory, _shared_valkey: Valkey) -> Iterator[Replicas]:
    folder = tmp_path_factory.mktemp("bridges")
    bus = {"url": _shared_valkey.url, "prefix": folder.name}
    limits = {"calls": "1000000/minute"}
    write_settings(folder, backends=BACKENDS, bus=bus, files_shared=True, limits=limits)
    scopes = itertools.chain.from_iterable(("--scope", each) for each in SCOPES)
    create = ("key", "create", "--config", FILE, "--tenant", "default", "--subject", "alice")
    key = run(folder, *create, *scopes).stdout.strip()
    with ExitStack() as stack:
        starts = [stack.enter_context(starting(folder, name=name)) for name in ("one", "two")]
        one, two = (ready() for ready in starts)
        yield Replicas(folder, one, two, key, _shared_valkey.url)


class RoundRobinStudio(FakeStudio):
    """A Studio that sends its requests to two workers in turn."""

    def __init__(self, replicas: Replicas, first: Served, second: Served, **more: Any) -> None:
        super().__init__(first.base, replicas.key, **more)
        self._turns = itertools.cycle((first.port, second.port))
        self._http.event_hooks = {"request": [self._choose_worker]}

    async def _loop(self) -> None:
        while True:  # the plugin retries when its connection breaks
            try:
                await super()._loop()
            except httpx.TransportError:
                await asyncio.sleep(0.1)

    async def _choose_worker(self, request: httpx.Request) -> None:
        request.url = request.url.copy_with(port=next(self._turns))
        request.headers["host"] = f"127.0.0.1:{request.url.port}"


async def wait_for_studios(replicas: Replicas, at: Served, names: set[str]) -> list[Json]:
    """Wait until the process lists exactly these connected Studios, and return them."""
    async with asyncio.timeout(20):
        while True:
            studios = (await replicas.call(at, "roblox_list_studios"))["structuredContent"]["output"]["studios"]
            if {each["name"] for each in studios if each["connected"]} == names:
                return [each for each in studios if each["connected"]]
            await asyncio.sleep(0.05)


async def test_call_at_any_replica_reaches_a_studio_connected_to_another(replicas: Replicas) -> None:
    async with FakeStudio(replicas.one.base, replicas.key, name="desk") as studio:
        await studio.wait_until_connected()
        (seen,) = await wait_for_studios(replicas, replicas.two, {"desk"})
        assert seen["studioId"] == studio.session
        for at in (replicas.one, replicas.two):
            answer = await replicas.call(at, "roblox_bridge_ping")
            assert answer["structuredContent"]["output"]["operation"] == "bridge.ping"
        assert len(studio.requests) == 2
    await wait_for_studios(replicas, replicas.two, set())


async def test_no_call_is_lost_or_repeated_when_each_studio_request_reaches_another_replica(
    replicas: Replicas,
) -> None:
    async with RoundRobinStudio(replicas, replicas.two, replicas.one, name="wanderer") as studio:
        await studio.wait_until_connected()
        await wait_for_studios(replicas, replicas.one, {"wanderer"})
        await wait_for_studios(replicas, replicas.two, {"wanderer"})
        paths = [f"Workspace.P{number}" for number in range(30)]
        targets = zip(paths, itertools.cycle((replicas.one, replicas.two)), strict=False)
        answers = await asyncio.gather(
            *(replicas.call(at, "roblox_instance_get", {"instancePath": path}) for path, at in targets)
        )
        assert [each["structuredContent"]["output"]["instancePath"] for each in answers] == paths
        assert sorted(each["payload"]["instancePath"] for each in studio.requests) == sorted(paths)
        assert studio.opened == 1
        left = await studio._http.delete(f"/v1/bridge/session/{studio.session}/close")
        assert left.status_code == 204


async def test_studio_token_is_never_published_on_the_bus(replicas: Replicas) -> None:
    async with redis.asyncio.Redis.from_url(replicas.bus) as client, client.monitor() as monitor:
        seen: list[str] = []

        async def watch() -> None:
            async for command in monitor.listen():
                seen.append(str(command))

        watching = asyncio.create_task(watch())
        async with RoundRobinStudio(replicas, replicas.one, replicas.two, name="careful") as studio:
            # Connected means that a process without the session has returned the Studio's token to it.
            await studio.wait_until_connected()
            await wait_for_studios(replicas, replicas.two, {"careful"})
            await replicas.call(replicas.two, "roblox_bridge_ping")
        watching.cancel()
    assert any("bridge.auth" in each for each in seen)
    secret = replicas.key.split("_", 2)[2]
    assert not [each for each in seen if secret in each]


async def test_studio_that_drops_a_read_at_another_replica_loses_no_request(replicas: Replicas) -> None:
    async with FakeStudio(replicas.one.base, replicas.key, name="brief") as studio:
        await studio.wait_until_connected()
        await wait_for_studios(replicas, replicas.two, {"brief"})
        assert studio._task is not None
        studio._task.cancel()
        at = f"{replicas.two.base}/v1/bridge/session/{studio.session}/read"
        async with httpx.AsyncClient(headers={"x-gox-auth": replicas.key}, verify=False) as http:
            with pytest.raises(httpx.ReadTimeout):
                await http.get(at, params={"timeout_ms": 20_000}, timeout=0.3)
            call = asyncio.create_task(replicas.call(replicas.one, "roblox_bridge_ping"))
            answer = await http.get(at, params={"timeout_ms": 10_000}, timeout=20)
            studio._receive(json.loads(answer.json()["line"]))
            assert (await call)["structuredContent"]["output"]["operation"] == "bridge.ping"
            assert (await http.delete(at.removesuffix("read") + "close")).status_code == 204


async def test_studio_that_reconnects_at_another_replica_replaces_its_session(replicas: Replicas) -> None:
    async with FakeStudio(replicas.one.base, replicas.key, name="mover") as before:
        await before.wait_until_connected()
        assert before._task is not None
        before._task.cancel()
        async with FakeStudio(replicas.two.base, replicas.key, name="mover") as after:
            await after.wait_until_connected()
            for at in (replicas.one, replicas.two):
                async with asyncio.timeout(10):
                    while [each["studioId"] for each in await wait_for_studios(replicas, at, {"mover"})] != [
                        after.session
                    ]:
                        await asyncio.sleep(0.02)
            assert await before.send({"requestId": "x", "success": True, "payload": {}}) == 404


async def test_session_of_another_key_is_unknown_at_every_replica(replicas: Replicas) -> None:
    async with FakeStudio(replicas.one.base, replicas.key, name="mine") as studio:
        await studio.wait_until_connected()
        create = ("key", "create", "--config", FILE, "--tenant", "default", "--subject", "bob")
        other = run(replicas.folder, *create, "--scope", "bridge:roblox").stdout.strip()
        async with httpx.AsyncClient(headers={"x-gox-auth": other}, verify=False) as http:
            for at in (replicas.one, replicas.two):
                url = f"{at.base}/v1/bridge/session/{studio.session}"
                assert (await http.get(f"{url}/read")).status_code == 404
                assert (await http.post(f"{url}/write", json={"line": "{}"})).status_code == 404
                assert (await http.delete(f"{url}/close")).status_code == 404


@asynccontextmanager
async def editor(replicas: Replicas, at: Served) -> AsyncIterator[Any]:
    """A fake Godot editor that echoes each request."""
    url = f"{at.base.replace('http', 'ws', 1)}/bridge/godot?project={quote(GAME)}"
    async with connect(url, additional_headers={"authorization": f"Bearer {replicas.key}"}) as socket:

        async def serve() -> None:
            async for line in socket:
                request = json.loads(line)
                payload = {"protocolVersion": "1.1", "capabilities": [], "asked": request["payload"]}
                await socket.send(json.dumps({"requestId": request["requestId"], "success": True, "payload": payload}))

        serving = asyncio.create_task(serve())
        yield socket
        serving.cancel()


async def test_calls_and_events_are_routed_between_replicas_and_an_editor(replicas: Replicas) -> None:
    async with editor(replicas, replicas.one) as socket:
        async with asyncio.timeout(20):
            while True:
                answer = await replicas.call(replicas.two, "godot_workspace_manager", {"action": "status"})
                editors = answer["structuredContent"]["result"]["editors"]
                if [each["state"] for each in editors] == ["ready"]:
                    break
                await asyncio.sleep(0.05)
        arguments = {"request_json": {"method": "open_scene", "params": {"scene": "res://main.tscn"}}}
        answer = await replicas.call(replicas.two, "godot_rpc", arguments)
        assert "res://main.tscn" in json.dumps(answer["structuredContent"]), answer
        await socket.send(json.dumps({"event": "scene_saved", "data": {"scene": "res://main.tscn"}}))
        async with asyncio.timeout(20):
            while "scene_saved" not in json.dumps(await replicas.read(replicas.two, "godot://editor/events")):
                await asyncio.sleep(0.05)


async def test_studio_of_a_killed_replica_is_served_again_within_ten_seconds(replicas: Replicas) -> None:
    with starting(replicas.folder, name="doomed") as ready:
        doomed = ready()
        async with RoundRobinStudio(replicas, doomed, replicas.one, name="survivor") as studio:
            await studio.wait_until_connected()
            await wait_for_studios(replicas, replicas.two, {"survivor"})
            before = studio.session
            doomed.process.kill()
            doomed.process.wait()
            # As a load balancer does: send no more requests to the killed process.
            studio._turns = itertools.cycle((replicas.one.port,))
            async with asyncio.timeout(10):
                # The Studio has no session at this moment: the call waits until it reconnects.
                assert (await replicas.call(replicas.two, "roblox_bridge_ping"))["structuredContent"]["output"]
            assert studio.session != before
