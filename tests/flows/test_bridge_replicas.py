"""Studios and editors over several gateway processes: wherever they connect, a call to any of them arrives."""

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
class House:
    """Two processes on one folder and one bus. `key` calls tools and connects Studios and editors."""

    folder: Path
    one: Served
    two: Served
    key: str
    bus: str

    async def call(self, at: Served, tool: str, arguments: Json | None = None) -> Json:
        params = {"name": tool, "arguments": arguments or {}}
        return await self._ask(at, "tools/call", params)

    async def read(self, at: Served, uri: str) -> Json:
        return json.loads((await self._ask(at, "resources/read", {"uri": uri}))["contents"][0]["text"])

    async def _ask(self, at: Served, method: str, params: Json) -> Json:
        headers = {
            "authorization": f"Bearer {self.key}",
            "accept": "application/json, text/event-stream",
            **modern_headers(method, params),
        }
        async with httpx.AsyncClient(timeout=30, verify=False) as http:
            answer = await http.post(at.url, json=modern(method, params), headers=headers)
        said = answer.text
        if answer.headers["content-type"].startswith("text/event-stream"):
            said = [line[6:] for line in said.splitlines() if line.startswith("data: ")][-1]
        whole = json.loads(said)
        assert "result" in whole, whole
        return whole["result"]


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory, _shared_valkey: Valkey) -> Iterator[House]:
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
        yield House(folder, one, two, key, _shared_valkey.url)


class Wanderer(FakeStudio):
    """A Studio each of whose requests reaches the next of several workers."""

    def __init__(self, house: House, first: Served, second: Served, **more: Any) -> None:
        super().__init__(first.base, house.key, **more)
        self._turns = itertools.cycle((first.port, second.port))
        self._http.event_hooks = {"request": [self._wander]}

    async def _loop(self) -> None:
        while True:  # as the plugin does when its connection breaks
            try:
                await super()._loop()
            except httpx.TransportError:
                await asyncio.sleep(0.1)

    async def _wander(self, request: httpx.Request) -> None:
        request.url = request.url.copy_with(port=next(self._turns))
        request.headers["host"] = f"127.0.0.1:{request.url.port}"


async def connected(house: House, at: Served, names: set[str]) -> list[Json]:
    """The Studios that this process knows, once they are these."""
    async with asyncio.timeout(20):
        while True:
            studios = (await house.call(at, "roblox_list_studios"))["structuredContent"]["output"]["studios"]
            if {each["name"] for each in studios if each["connected"]} == names:
                return [each for each in studios if each["connected"]]
            await asyncio.sleep(0.05)


async def test_a_call_at_any_replica_reaches_the_studio_at_another(house: House) -> None:
    async with FakeStudio(house.one.base, house.key, name="desk") as studio:
        await studio.wait_until_connected()
        (seen,) = await connected(house, house.two, {"desk"})
        assert seen["studioId"] == studio.session
        for at in (house.one, house.two):
            answer = await house.call(at, "roblox_bridge_ping")
            assert answer["structuredContent"]["output"]["operation"] == "bridge.ping"
        assert len(studio.requests) == 2
    await connected(house, house.two, set())


async def test_a_studio_may_reach_another_replica_with_each_request_and_no_call_is_lost_or_doubled(
    house: House,
) -> None:
    async with Wanderer(house, house.two, house.one, name="wanderer") as studio:
        await studio.wait_until_connected()
        await connected(house, house.one, {"wanderer"})
        await connected(house, house.two, {"wanderer"})
        paths = [f"Workspace.P{number}" for number in range(30)]
        ways = zip(paths, itertools.cycle((house.one, house.two)), strict=False)
        answers = await asyncio.gather(
            *(house.call(at, "roblox_instance_get", {"instancePath": path}) for path, at in ways)
        )
        assert [each["structuredContent"]["output"]["instancePath"] for each in answers] == paths
        assert sorted(each["payload"]["instancePath"] for each in studio.requests) == sorted(paths)
        assert studio.opened == 1
        left = await studio._http.delete(f"/v1/bridge/session/{studio.session}/close")
        assert left.status_code == 204


async def test_a_studios_token_is_never_on_the_bus(house: House) -> None:
    async with redis.asyncio.Redis.from_url(house.bus) as client, client.monitor() as monitor:
        seen: list[str] = []

        async def watch() -> None:
            async for command in monitor.listen():
                seen.append(str(command))

        watching = asyncio.create_task(watch())
        async with Wanderer(house, house.one, house.two, name="careful") as studio:
            await (
                studio.wait_until_connected()
            )  # it has been given its own token back, by a process that does not hold its session
            await connected(house, house.two, {"careful"})
            await house.call(house.two, "roblox_bridge_ping")
        watching.cancel()
    assert any("bridge.auth" in each for each in seen)
    secret = house.key.split("_", 2)[2]
    assert not [each for each in seen if secret in each]


async def test_a_studio_that_hangs_up_at_another_replica_loses_nothing(house: House) -> None:
    async with FakeStudio(house.one.base, house.key, name="brief") as studio:
        await studio.wait_until_connected()
        await connected(house, house.two, {"brief"})
        assert studio._task is not None
        studio._task.cancel()
        at = f"{house.two.base}/v1/bridge/session/{studio.session}/read"
        async with httpx.AsyncClient(headers={"x-gox-auth": house.key}, verify=False) as http:
            with pytest.raises(httpx.ReadTimeout):
                await http.get(at, params={"timeout_ms": 20_000}, timeout=0.3)
            asking = asyncio.create_task(house.call(house.one, "roblox_bridge_ping"))
            answer = await http.get(at, params={"timeout_ms": 10_000}, timeout=20)
            studio._hear(json.loads(answer.json()["line"]))
            assert (await asking)["structuredContent"]["output"]["operation"] == "bridge.ping"
            assert (await http.delete(at.removesuffix("read") + "close")).status_code == 204


async def test_a_studio_that_comes_back_at_another_replica_replaces_itself(house: House) -> None:
    async with FakeStudio(house.one.base, house.key, name="mover") as before:
        await before.wait_until_connected()
        assert before._task is not None
        before._task.cancel()
        async with FakeStudio(house.two.base, house.key, name="mover") as after:
            await after.wait_until_connected()
            for at in (house.one, house.two):
                async with asyncio.timeout(10):
                    while [each["studioId"] for each in await connected(house, at, {"mover"})] != [after.session]:
                        await asyncio.sleep(0.02)
            assert await before.send({"requestId": "x", "success": True, "payload": {}}) == 404


async def test_another_keys_session_is_unknown_at_every_replica(house: House) -> None:
    async with FakeStudio(house.one.base, house.key, name="mine") as studio:
        await studio.wait_until_connected()
        create = ("key", "create", "--config", FILE, "--tenant", "default", "--subject", "bob")
        other = run(house.folder, *create, "--scope", "bridge:roblox").stdout.strip()
        async with httpx.AsyncClient(headers={"x-gox-auth": other}, verify=False) as http:
            for at in (house.one, house.two):
                url = f"{at.base}/v1/bridge/session/{studio.session}"
                assert (await http.get(f"{url}/read")).status_code == 404
                assert (await http.post(f"{url}/write", json={"line": "{}"})).status_code == 404
                assert (await http.delete(f"{url}/close")).status_code == 404


@asynccontextmanager
async def editor(house: House, at: Served) -> AsyncIterator[Any]:
    """A Godot editor as far as the wire goes: it answers with what it was asked."""
    url = f"{at.base.replace('http', 'ws', 1)}/bridge/godot?project={quote(GAME)}"
    async with connect(url, additional_headers={"authorization": f"Bearer {house.key}"}) as socket:

        async def serve() -> None:
            async for line in socket:
                request = json.loads(line)
                payload = {"protocolVersion": "1.1", "capabilities": [], "asked": request["payload"]}
                await socket.send(json.dumps({"requestId": request["requestId"], "success": True, "payload": payload}))

        serving = asyncio.create_task(serve())
        yield socket
        serving.cancel()


async def test_a_call_and_an_event_find_their_way_between_replicas_and_an_editor(house: House) -> None:
    async with editor(house, house.one) as socket:
        async with asyncio.timeout(20):
            while True:
                answer = await house.call(house.two, "godot_workspace_manager", {"action": "status"})
                editors = answer["structuredContent"]["result"]["editors"]
                if [each["state"] for each in editors] == ["ready"]:
                    break
                await asyncio.sleep(0.05)
        asked = {"request_json": {"method": "open_scene", "params": {"scene": "res://main.tscn"}}}
        answer = await house.call(house.two, "godot_rpc", asked)
        assert "res://main.tscn" in json.dumps(answer["structuredContent"]), answer
        await socket.send(json.dumps({"event": "scene_saved", "data": {"scene": "res://main.tscn"}}))
        async with asyncio.timeout(20):
            while "scene_saved" not in json.dumps(await house.read(house.two, "godot://editor/events")):
                await asyncio.sleep(0.05)


async def test_what_a_killed_replica_held_is_served_again_within_ten_seconds(house: House) -> None:
    with starting(house.folder, name="doomed") as ready:
        doomed = ready()
        async with Wanderer(house, doomed, house.one, name="survivor") as studio:
            await studio.wait_until_connected()
            await connected(house, house.two, {"survivor"})
            before = studio.session
            doomed.process.kill()
            doomed.process.wait()
            # As a balancer does: what is gone gets no more requests.
            studio._turns = itertools.cycle((house.one.port,))
            async with asyncio.timeout(10):
                # Made while nobody holds the Studio, it waits for its return.
                assert (await house.call(house.two, "roblox_bridge_ping"))["structuredContent"]["output"]
            assert studio.session != before
