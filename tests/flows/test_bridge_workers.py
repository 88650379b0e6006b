"""The real Studio plugin and the real Godot editor connect to `gatehouse serve` with one worker and with three."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backends.roblox.headless_studio import StudioUnavailable, install, run_headless_studio
from tests.engines import godot as installer
from tests.flows.process import TIMEOUT, Served, run, serving, until, write_settings
from tests.prerequisites import skip_or_fail
from tests.servers import Valkey

CALLS = 30
"""Each on a connection of its own, so that every worker gets some."""
SCENE = '[gd_scene format=3]\n\n[node name="Main" type="Node2D"]\n'


@pytest.fixture(params=[1, 3])
def served(request: pytest.FixtureRequest, tmp_path: Path, valkey: Valkey) -> Iterator[Served]:
    godot: dict[str, Any] = {"module": "backends.godot"}
    if (engine := installer.installed()) is not None:
        godot["options"] = {"godot_path": str(engine), "allow_dangerous_ops": True}
    roblox = {"module": "backends.roblox", "options": {"bridge_enabled": True}}
    backends, limits = {"roblox": roblox, "godot": godot}, {"calls": "100000/minute"}
    write_settings(tmp_path, backends=backends, bus={"url": valkey.url}, files_shared=True, limits=limits)
    with serving(tmp_path, "--workers", str(request.param)) as gateway:
        yield gateway


async def test_plugin_connects_and_every_worker_reaches_its_studio(served: Served) -> None:
    try:
        modules = await install()
    except StudioUnavailable as exc:
        skip_or_fail(str(exc))
    async with run_headless_studio(served.base, _key(served, "bridge:roblox"), "Studio", modules):
        await asyncio.to_thread(until, lambda: _studios(served) == ["Studio"], "the Studio is connected")
        part = {"parentPath": "Workspace", "className": "Part"}
        for number in range(CALLS):
            await asyncio.to_thread(_output, served, "roblox_instance_create", {**part, "name": f"P{number}"})
        found = await asyncio.to_thread(
            _output, served, "roblox_instance_find", {"rootPath": "game", "className": "Part"}
        )
        assert sorted(each["name"] for each in found["matches"]) == sorted(f"P{number}" for number in range(CALLS))


async def test_editor_connects_and_every_worker_reaches_it(served: Served) -> None:
    if installer.installed() is None:
        skip_or_fail("Godot is not installed: run `make engines`")
    project = served.folder / ".gatehouse" / "files" / "default" / "godot" / "projects" / "meadow"
    project.mkdir(parents=True)
    (project / "project.godot").write_text('config_version=5\n\n[application]\n\nconfig/name="Meadow"\n')
    (project / "main.tscn").write_text(SCENE)
    here = {"projectPath": str(project)}
    scene = {**here, "scenePath": "main.tscn"}
    _envelope(served, "godot_sync_addon", here)
    (project / ".godot_mcp").mkdir(exist_ok=True)
    address = served.base.replace("http://", "ws://") + "/bridge/godot"
    (project / ".godot_mcp" / "bridge.cfg").write_text(
        f'[bridge]\nurl="{address}"\ntoken="{_key(served, "bridge:godot")}"\n'
    )
    _envelope(served, "godot_launch_editor", here)
    until(lambda: _editors(served) == [str(project)], "the editor is connected", TIMEOUT)
    _envelope(served, "godot_workspace_manager", {"action": "open_scene", **scene})
    for number in range(CALLS):
        added = _envelope(served, "godot_add_node", {**scene, "nodeType": "Node", "nodeName": f"N{number}"})
        assert added["execution"]["executor"] == "editor"
    _envelope(served, "godot_save_scene", scene)
    text = (project / "main.tscn").read_text()
    assert all(f'name="N{number}"' in text for number in range(CALLS))


def _key(served: Served, scope: str) -> str:
    created = run(served.folder, "key", "create", "--subject", "alice", "--scope", scope)
    assert created.returncode == 0, created.stderr
    return created.stdout.strip()


def _studios(served: Served) -> list[str]:
    listed = _output(served, "roblox_list_studios", {})
    return [each["name"] for each in listed["studios"] if each["connected"]]


def _editors(served: Served) -> list[str]:
    status = _envelope(served, "godot_workspace_manager", {"action": "status"})
    return [each["name"] for each in status["result"]["editors"] if each["state"] == "ready"]


def _output(served: Served, tool: str, arguments: dict[str, Any]) -> Any:
    answer = served.call(tool, arguments)
    assert answer["result"]["isError"] is False, answer
    return json.loads(answer["result"]["content"][0]["text"])["output"]


def _envelope(served: Served, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    answer = served.call(tool, arguments)
    assert "result" in answer, answer
    envelope = answer["result"]["structuredContent"]
    assert envelope["ok"], json.dumps(envelope["error"])
    return envelope
