"""A real headless editor with our plugin, connected to the gateway by WebSocket."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from backends.godot.tool_table import TOOLS
from tests.backends.godot.editors import Door, real_editor, stand_in
from tests.backends.godot.test_every_tool import png

S = {"scenePath": "main.tscn"}
NEW = {"scenePath": "new.tscn"}


@pytest.fixture
def door(studio: Any) -> Door:
    return Door(studio)


async def test_an_editor_needs_a_key_with_the_scope_and_a_project(door: Door) -> None:
    good, poor = await door.key(), await door.key("default", "mcp:call")
    for key, url in (("wrong", door.url + "?project=/p"), (poor, door.url + "?project=/p"), (good, door.url)):
        with pytest.raises((InvalidStatus, ConnectionClosed)):
            async with connect(url, additional_headers={"authorization": f"Bearer {key}"}) as socket:
                await socket.recv()


async def test_a_project_on_another_machine_is_reached_through_its_editor_only(door: Door) -> None:
    away = "/home/someone/game"
    assert (
        await door.studio.code("add_node", **S, projectPath=away, nodeType="Node", nodeName="A")
        == "E_PERMISSION_DENIED"
    )
    async with stand_in(door, away) as editor:
        envelope = await door.studio.call("add_node", **S, projectPath=away, nodeType="Node", nodeName="A")
        assert envelope["ok"], envelope["error"]
        assert envelope["execution"] == {"executor": "editor", "method": "add_node"}
        assert editor.heard[0]["payload"] == {"scene_path": "res://main.tscn", "node_type": "Node", "node_name": "A"}
        assert editor.heard[0]["correlationId"] == envelope["meta"]["correlationId"]
        for hostile in ("../x.tscn", "/etc/x.tscn", "user://x.tscn"):
            more = {"nodeType": "Node", "nodeName": "A", "projectPath": away}
            assert await door.studio.code("add_node", scenePath=hostile, **more) == "E_PERMISSION_DENIED"
        assert await door.studio.code("list_scripts", projectPath=away) == "E_UNSUPPORTED"
        assert await door.studio.code("list_scripts", projectPath=away + "/x") == "E_PERMISSION_DENIED"


async def test_an_editor_of_one_tenant_is_not_there_for_another(studio_with: Any) -> None:
    async with studio_with(settings={"tenants": {"default": {}, "acme": {}}}) as ours:
        door = Door(ours)
        theirs = await ours.of("acme")
        async with stand_in(door, "/home/us/game") as editor:
            assert (await ours.good("godot_rpc", projectPath=None, request_json={"method": "ping"}))["asked"] == {}
            assert (
                await theirs.code("godot_rpc", projectPath=None, request_json={"method": "ping"}) == "E_NOT_CONNECTED"
            )
            code = await theirs.code("add_node", **S, projectPath="/home/us/game", nodeType="Node", nodeName="A")
            assert code == "E_PERMISSION_DENIED"
            assert len(editor.heard) == 1
            status = await ours.good("godot_workspace_manager", action="status", projectPath=None)
            assert [each["name"] for each in status["editors"]] == ["/home/us/game"]
        async with asyncio.timeout(10):
            while await ours.code("godot_rpc", projectPath=None, request_json={"method": "ping"}) != "E_NOT_CONNECTED":
                pass


async def test_dangerous_methods_of_an_editor_need_to_be_allowed(door: Door) -> None:
    async with stand_in(door, "/home/us/game") as editor:
        for request in (
            {"method": "remove_node", "params": {}},
            {"method": "call", "params": {"target": "OS", "name": "execute"}},
            {"method": "open_scene", "params": {"scene_path": "user://x.tscn"}},
        ):
            assert await door.studio.code("godot_rpc", projectPath=None, request_json=request) == "E_PERMISSION_DENIED"
            assert (
                await door.studio.code("godot_editor_batch", projectPath=None, steps=[request]) == "E_PERMISSION_DENIED"
            )
        assert editor.heard == []


async def test_a_real_editor_does_undoes_and_saves_what_it_is_asked(studio_with: Any, engine: Path) -> None:
    async with real_editor(studio_with, engine) as studio:
        manage = lambda action, **more: studio.good("godot_scene_manager", action=action, **S, **more)  # noqa: E731
        await studio.good("godot_workspace_manager", action="open_scene", **S)
        envelope = await studio.call(
            "add_node", **S, nodeType="Label", nodeName="Title", properties={"text": "Hi", "position": [3, 4]}
        )
        assert envelope["ok"], envelope["error"]
        assert envelope["execution"]["executor"] == "editor"
        names = lambda tree: sorted(each["name"] for each in tree["tree"]["children"])  # noqa: E731
        inspect = lambda action, **more: studio.good("godot_inspector_manager", action=action, **S, **more)  # noqa: E731
        assert names(await inspect("scene_tree.get")) == ["Player", "Title"]
        await manage("undo")
        assert names(await inspect("scene_tree.get")) == ["Player"]
        await manage("redo")
        assert (await inspect("get_property", nodePath="Title", property="text"))["value"] == '"Hi"'
        await studio.good("edit_node", **S, nodePath="Title", properties={"text": "Bye", "modulate": "red"})
        assert await studio.code("edit_node", **S, nodePath="Title", properties={"nope": 1}) == "E_SCHEMA_VALIDATION"
        assert await studio.code("edit_node", **S, nodePath="Nobody", properties={"text": "x"}) == "E_NOT_FOUND"
        await manage("duplicate", nodePath="Title", newName="Twin")
        await manage("rename", nodePath="Twin", newName="Other")
        await manage("reparent", nodePath="Other", newParentPath="Player")
        await manage("move", nodePath="Player/Other", index=0)
        await manage(
            "batch_create", items=[{"nodeType": "Timer", "nodeName": "T"}, {"nodeType": "Node", "nodeName": "N"}]
        )
        await manage("undo")
        assert names(await inspect("scene_tree.get")) == ["Player", "Title"]
        await manage("remove", nodePath="Player/Sword")
        await studio.good("write_script", scriptPath="p.gd", content="extends Sprite2D\n")
        await manage("attach_script", nodePath="Player", scriptPath="p.gd")
        await inspect("connect_signal", fromNodePath="Player", signal="hidden", toNodePath=".", method="show")
        await inspect("disconnect_signal", fromNodePath="Player", signal="hidden", toNodePath=".", method="show")
        await inspect("select", nodePath="Title")
        assert (await inspect("get_selection"))["nodes"] == ["Title"]
        assert (await inspect("query", className="Sprite2D"))["total"] == 1
        assert await studio.code("capture_editor_viewport") == "E_UNSUPPORTED"
        await batches(studio)
        await studio.good("save_scene", **S)
        text = (studio.project / "main.tscn").read_text()
        assert 'text = "Bye"' in text
        assert 'name="Other"' in text
        assert 'name="Sword"' not in text
        assert 'path="res://p.gd"' in text
        tree = await studio.good("get_node_tree", **S)
        assert tree["nodeCount"] == 4
        await told(studio, *EVENTS)
        added = [each for each in await events(studio) if each["event"] == "node_added"]
        assert len(added) == 5  # not those of the batch that was taken back
        await every_method(studio)


EVENTS = (
    *("scene_opened", "scene_saved", "filesystem_changed"),
    *("node_added", "node_modified", "node_removed", "script_attached"),
)


# (tool, arguments) for every method that an editor carries out, in the order they build on each other.
METHODS: list[tuple[str, dict[str, Any]]] = [
    ("create_scene", {"scenePath": "new.tscn", "rootNodeType": "Node2D"}),
    ("godot_workspace_manager", {"action": "new_scene", "scenePath": "newer.tscn"}),
    ("godot_workspace_manager", {"action": "open_scene", **NEW}),
    ("add_node", {**NEW, "nodeType": "Sprite2D", "nodeName": "A"}),
    ("edit_node", {**NEW, "nodePath": "A", "properties": {"position": [1, 2]}}),
    ("duplicate_node", {**NEW, "nodePath": "A", "newName": "B"}),
    ("rename_node", {**NEW, "nodePath": "B", "newName": "C"}),
    ("move_node", {**NEW, "nodePath": "C", "newParentPath": "A"}),
    ("instance_scene", {**NEW, "instancePath": "newer.tscn", "instanceName": "I"}),
    ("connect_signal", {**NEW, "fromNodePath": "A", "signal": "hidden", "toNodePath": ".", "method": "show"}),
    ("attach_script", {**NEW, "nodePath": "A", "scriptPath": "p.gd"}),
    ("detach_script", {**NEW, "nodePath": "A"}),
    ("godot_code_manager", {"action": "script.attach", **NEW, "nodePath": "A", "scriptPath": "p.gd"}),
    ("remove_node", {**NEW, "nodePath": "A/C"}),
    *[
        ("godot_scene_manager", {"action": action, **NEW, **more})
        for action, more in (
            ("create", {"nodeType": "Node", "nodeName": "D"}),
            ("update", {"nodePath": "A", "props": {"rotation": 1}}),
            ("batch_create", {"items": [{"nodeType": "Node", "nodeName": "E"}]}),
            ("attach_script", {"nodePath": "A", "scriptPath": "p.gd"}),
            ("rename", {"nodePath": "D", "newName": "F"}),
            ("move", {"nodePath": "F", "index": 0}),
            ("duplicate", {"nodePath": "F", "newName": "G"}),
            ("reparent", {"nodePath": "G", "newParentPath": "F"}),
            ("instance", {"instanceScenePath": "newer.tscn", "name": "J"}),
            ("remove", {"nodePath": "J"}),
            ("undo", {}),
            ("redo", {}),
        )
    ],
    *[
        ("godot_inspector_manager", {"action": action, **NEW, **more})
        for action, more in (
            ("query", {"className": "Node"}),
            ("scene_tree.get", {}),
            ("inspect", {"nodePath": "A"}),
            ("property_list", {"className": "Sprite2D"}),
            ("method_list", {"className": "Sprite2D"}),
            ("signals.list", {"className": "Sprite2D"}),
            ("select", {"nodePath": "A"}),
            ("get_selection", {}),
            ("focus_node", {"nodePath": "F"}),
            ("connect_signal", {"fromNodePath": "A", "signal": "draw", "toNodePath": ".", "method": "hide"}),
            ("disconnect_signal", {"fromNodePath": "A", "signal": "draw", "toNodePath": ".", "method": "hide"}),
            ("set_property", {"nodePath": "A", "property": "rotation", "value": 2}),
            ("get_property", {"nodePath": "A", "property": "rotation"}),
        )
    ],
    ("save_scene", NEW),
    ("godot_workspace_manager", {"action": "save_scene", **NEW}),
    ("godot_workspace_manager", {"action": "save_all"}),
    ("godot_asset_manager", {"action": "scan"}),
    ("godot_asset_manager", {"action": "reimport", "paths": ["icon.png"]}),
    ("run_project", {"scene": "new.tscn"}),
    ("stop_project", {"projectPath": None}),
    ("godot_workspace_manager", {"action": "run", "scene": "new.tscn"}),
    ("godot_workspace_manager", {"action": "stop"}),
]


def test_the_table_has_every_method_of_the_editor() -> None:
    called = {(tool, arguments.get("action")) for tool, arguments in METHODS}
    there = {(tool.name, None) for tool in TOOLS.values() if tool.editor}
    there |= {(tool.name, action.name) for tool in TOOLS.values() for action in tool.actions if action.editor}
    # A machine without a screen has no viewport: its row is in the test of the real editor.
    assert called == there - {("capture_editor_viewport", None)}


async def every_method(studio: Any) -> None:
    (studio.project / "icon.png").write_bytes(png())
    for tool, arguments in METHODS:
        envelope = await studio.call(tool, **arguments)
        assert envelope["ok"], (tool, arguments, envelope["error"])
        assert envelope["execution"]["executor"] == "editor", (tool, arguments)
    assert (await studio.good("godot_workspace_manager", action="connect"))["editor"]
    asked = {"method": "get_property", "params": {"node_path": "A", "property": "rotation"}}
    assert (await studio.good("godot_rpc", projectPath=None, request_json=asked))["value"] == "2.0"
    inspected = await studio.good("godot_inspect", projectPath=None, query_json={"class_name": "Timer"})
    assert "timeout" in inspected["signals"]
    await told(studio, "scene_created", "script_detached", "project_started", "project_stopped")


async def told(studio: Any, *wanted: str) -> None:
    """Some of them the editor tells in its own time."""
    async with asyncio.timeout(20):
        while not {*wanted} <= {each["event"] for each in await events(studio)}:
            await asyncio.sleep(0.02)


async def events(studio: Any) -> list[dict[str, Any]]:
    answer = (await studio.gateway.post("resources/read", {"uri": "godot://editor/events"})).json()["result"]
    return json.loads(answer["contents"][0]["text"])["events"]


async def batches(studio: Any) -> None:
    """One undo for all steps; a failed step takes back those before it."""
    steps = [
        {"method": "add_node", "params": {"scene_path": "main.tscn", "node_type": "Node", "node_name": "B1"}},
        {"method": "add_node", "params": {"scene_path": "main.tscn", "node_type": "NoSuch", "node_name": "B2"}},
    ]
    assert await studio.code("godot_editor_batch", projectPath=None, steps=steps) == "E_SCHEMA_VALIDATION"
    found = await studio.good("godot_inspector_manager", action="query", **S, name="B1")
    assert found["total"] == 0
    await studio.good("godot_editor_batch", projectPath=None, steps=steps[:1])
    await studio.good("godot_scene_manager", action="undo", projectPath=str(studio.project))
    found = await studio.good("godot_inspector_manager", action="query", **S, name="B1")
    assert found["total"] == 0
