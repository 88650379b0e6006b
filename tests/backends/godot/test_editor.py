"""Editors on the bridge: a fake one, and a real headless editor with the Gatehouse plugin."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from backends.godot.tool_table import TOOLS
from tests.backends.godot.editors import BridgeEndpoint, fake_editor, real_editor
from tests.backends.godot.test_every_tool import png

SCENE = {"scenePath": "main.tscn"}
NEW = {"scenePath": "new.tscn"}


@pytest.fixture
def bridge(harness: Any) -> BridgeEndpoint:
    return BridgeEndpoint(harness)


async def test_editor_connection_requires_a_key_with_the_bridge_scope_and_a_project(bridge: BridgeEndpoint) -> None:
    bridge_key, wrong_scope_key = await bridge.key(), await bridge.key("default", "mcp:call")
    for key, url in (
        ("wrong", bridge.url + "?project=/p"),
        (wrong_scope_key, bridge.url + "?project=/p"),
        (bridge_key, bridge.url),
    ):
        with pytest.raises((InvalidStatus, ConnectionClosed)):
            async with connect(url, additional_headers={"authorization": f"Bearer {key}"}) as socket:
                await socket.recv()


async def test_remote_project_is_reachable_only_through_its_editor(bridge: BridgeEndpoint) -> None:
    remote_path = "/home/someone/game"
    assert (
        await bridge.harness.error_code("add_node", **SCENE, projectPath=remote_path, nodeType="Node", nodeName="A")
        == "E_PERMISSION_DENIED"
    )
    async with fake_editor(bridge, remote_path) as editor:
        envelope = await bridge.harness.call(
            "add_node", **SCENE, projectPath=remote_path, nodeType="Node", nodeName="A"
        )
        assert envelope["ok"], envelope["error"]
        assert envelope["execution"] == {"executor": "editor", "method": "add_node"}
        assert editor.requests[0]["payload"] == {"scene_path": "res://main.tscn", "node_type": "Node", "node_name": "A"}
        assert editor.requests[0]["correlationId"] == envelope["meta"]["correlationId"]
        for hostile in ("../x.tscn", "/etc/x.tscn", "user://x.tscn"):
            more = {"nodeType": "Node", "nodeName": "A", "projectPath": remote_path}
            assert await bridge.harness.error_code("add_node", scenePath=hostile, **more) == "E_PERMISSION_DENIED"
        assert await bridge.harness.error_code("list_scripts", projectPath=remote_path) == "E_UNSUPPORTED"
        assert await bridge.harness.error_code("list_scripts", projectPath=remote_path + "/x") == "E_PERMISSION_DENIED"


async def test_editor_of_one_tenant_is_not_available_to_another(open_harness: Any) -> None:
    async with open_harness(settings={"tenants": {"default": {}, "acme": {}}}) as ours:
        bridge = BridgeEndpoint(ours)
        theirs = await ours.for_tenant("acme")
        async with fake_editor(bridge, "/home/us/game") as editor:
            assert (await ours.call_ok("godot_rpc", projectPath=None, request_json={"method": "ping"}))["asked"] == {}
            assert (
                await theirs.error_code("godot_rpc", projectPath=None, request_json={"method": "ping"})
                == "E_NOT_CONNECTED"
            )
            code = await theirs.error_code(
                "add_node", **SCENE, projectPath="/home/us/game", nodeType="Node", nodeName="A"
            )
            assert code == "E_PERMISSION_DENIED"
            assert len(editor.requests) == 1
            status = await ours.call_ok("godot_workspace_manager", action="status", projectPath=None)
            assert [each["name"] for each in status["editors"]] == ["/home/us/game"]
        async with asyncio.timeout(10):
            while (
                await ours.error_code("godot_rpc", projectPath=None, request_json={"method": "ping"})
                != "E_NOT_CONNECTED"
            ):
                pass


async def test_dangerous_editor_methods_are_denied_by_default(bridge: BridgeEndpoint) -> None:
    async with fake_editor(bridge, "/home/us/game") as editor:
        for request in (
            {"method": "remove_node", "params": {}},
            {"method": "call", "params": {"target": "OS", "name": "execute"}},
            {"method": "open_scene", "params": {"scene_path": "user://x.tscn"}},
        ):
            assert (
                await bridge.harness.error_code("godot_rpc", projectPath=None, request_json=request)
                == "E_PERMISSION_DENIED"
            )
            assert (
                await bridge.harness.error_code("godot_editor_batch", projectPath=None, steps=[request])
                == "E_PERMISSION_DENIED"
            )
        assert editor.requests == []


async def test_real_editor_executes_undoes_and_saves_changes(open_harness: Any, engine: Path) -> None:
    async with real_editor(open_harness, engine) as harness:
        manage = lambda action, **more: harness.call_ok("godot_scene_manager", action=action, **SCENE, **more)  # noqa: E731
        await harness.call_ok("godot_workspace_manager", action="open_scene", **SCENE)
        envelope = await harness.call(
            "add_node", **SCENE, nodeType="Label", nodeName="Title", properties={"text": "Hi", "position": [3, 4]}
        )
        assert envelope["ok"], envelope["error"]
        assert envelope["execution"]["executor"] == "editor"
        names = lambda tree: sorted(each["name"] for each in tree["tree"]["children"])  # noqa: E731
        inspect = lambda action, **more: harness.call_ok("godot_inspector_manager", action=action, **SCENE, **more)  # noqa: E731
        assert names(await inspect("scene_tree.get")) == ["Player", "Title"]
        await manage("undo")
        assert names(await inspect("scene_tree.get")) == ["Player"]
        await manage("redo")
        assert (await inspect("get_property", nodePath="Title", property="text"))["value"] == '"Hi"'
        await harness.call_ok("edit_node", **SCENE, nodePath="Title", properties={"text": "Bye", "modulate": "red"})
        assert (
            await harness.error_code("edit_node", **SCENE, nodePath="Title", properties={"nope": 1})
            == "E_SCHEMA_VALIDATION"
        )
        assert (
            await harness.error_code("edit_node", **SCENE, nodePath="Nobody", properties={"text": "x"}) == "E_NOT_FOUND"
        )
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
        await harness.call_ok("write_script", scriptPath="p.gd", content="extends Sprite2D\n")
        await manage("attach_script", nodePath="Player", scriptPath="p.gd")
        await inspect("connect_signal", fromNodePath="Player", signal="hidden", toNodePath=".", method="show")
        await inspect("disconnect_signal", fromNodePath="Player", signal="hidden", toNodePath=".", method="show")
        await inspect("select", nodePath="Title")
        assert (await inspect("get_selection"))["nodes"] == ["Title"]
        assert (await inspect("query", className="Sprite2D"))["total"] == 1
        assert await harness.error_code("capture_editor_viewport") == "E_UNSUPPORTED"
        await check_batches(harness)
        await harness.call_ok("save_scene", **SCENE)
        text = (harness.project / "main.tscn").read_text()
        assert 'text = "Bye"' in text
        assert 'name="Other"' in text
        assert 'name="Sword"' not in text
        assert 'path="res://p.gd"' in text
        tree = await harness.call_ok("get_node_tree", **SCENE)
        assert tree["nodeCount"] == 4
        await wait_for_events(harness, *EVENTS)
        added = [each for each in await events(harness) if each["event"] == "node_added"]
        assert len(added) == 5  # without those of the batch that was rolled back
        await check_every_method(harness)


EVENTS = (
    *("scene_opened", "scene_saved", "filesystem_changed"),
    *("node_added", "node_modified", "node_removed", "script_attached"),
)


# (tool, arguments) for every method that an editor executes; later calls depend on earlier ones.
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


def test_table_covers_every_editor_method() -> None:
    called = {(tool, arguments.get("action")) for tool, arguments in METHODS}
    expected = {(tool.name, None) for tool in TOOLS.values() if tool.editor_method}
    expected |= {(tool.name, action.name) for tool in TOOLS.values() for action in tool.actions if action.editor_method}
    # Without a display there is no viewport: the test of the real editor covers this tool.
    assert called == expected - {("capture_editor_viewport", None)}


async def check_every_method(harness: Any) -> None:
    (harness.project / "icon.png").write_bytes(png())
    for tool, arguments in METHODS:
        envelope = await harness.call(tool, **arguments)
        assert envelope["ok"], (tool, arguments, envelope["error"])
        assert envelope["execution"]["executor"] == "editor", (tool, arguments)
    assert (await harness.call_ok("godot_workspace_manager", action="connect"))["editor"]
    request = {"method": "get_property", "params": {"node_path": "A", "property": "rotation"}}
    assert (await harness.call_ok("godot_rpc", projectPath=None, request_json=request))["value"] == "2.0"
    inspected = await harness.call_ok("godot_inspect", projectPath=None, query_json={"class_name": "Timer"})
    assert "timeout" in inspected["signals"]
    await wait_for_events(harness, "scene_created", "script_detached", "project_started", "project_stopped")


async def wait_for_events(harness: Any, *wanted: str) -> None:
    """Wait for the events: the editor sends some of them with a delay."""
    async with asyncio.timeout(20):
        while not {*wanted} <= {each["event"] for each in await events(harness)}:
            await asyncio.sleep(0.02)


async def events(harness: Any) -> list[dict[str, Any]]:
    answer = (await harness.gateway.post("resources/read", {"uri": "godot://editor/events"})).json()["result"]
    return json.loads(answer["contents"][0]["text"])["events"]


async def check_batches(harness: Any) -> None:
    """A batch is one undo step, and a failed step rolls back the previous ones."""
    steps = [
        {"method": "add_node", "params": {"scene_path": "main.tscn", "node_type": "Node", "node_name": "B1"}},
        {"method": "add_node", "params": {"scene_path": "main.tscn", "node_type": "NoSuch", "node_name": "B2"}},
    ]
    assert await harness.error_code("godot_editor_batch", projectPath=None, steps=steps) == "E_SCHEMA_VALIDATION"
    found = await harness.call_ok("godot_inspector_manager", action="query", **SCENE, name="B1")
    assert found["total"] == 0
    await harness.call_ok("godot_editor_batch", projectPath=None, steps=steps[:1])
    await harness.call_ok("godot_scene_manager", action="undo", projectPath=str(harness.project))
    found = await harness.call_ok("godot_inspector_manager", action="query", **SCENE, name="B1")
    assert found["total"] == 0
