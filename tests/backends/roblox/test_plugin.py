"""Every tool and every error of the real plugin, in a Luau VM, through the bridge and the gateway."""

from typing import Any

import pytest

# One Studio serves the whole file, so all of it runs on one event loop.
pytestmark = pytest.mark.asyncio(loop_scope="module")

MODULE = """
local M = {}
function M.add(a, b) return a + b end
function M.nothing() end
function M.boom() error("bang") end
function M.part() return workspace:FindFirstChild("Part") end
function M.deep() return {1, {2, {3, {4, {5, {6}}}}}} end
function M.many() local t = {} for i = 1, 200 do t["k" .. i] = i end return t end
function M.odd() return {inf = 1 / 0, f = print, nested = {a = true}} end
function M.recordings() return _G.recordings end
return M
"""


async def test_scripts_from_creation_to_deletion(studio: Any) -> None:
    assert await studio.output("bridge_ping") == {"ok": True, "placeId": 0, "studio": True}
    made = await studio.output(
        "script_create",
        {"parentPath": "game.ServerScriptService", "name": "Main", "scriptType": "Script", "source": "return 1"},
    )
    assert made == {
        "created": True,
        "className": "Script",
        "path": "ServerScriptService.Main",
        "instanceId": made["instanceId"],
        "diffSummary": "create Script ServerScriptService.Main",
    }
    by_id = {"scriptId": made["instanceId"]}
    source = await studio.output("script_get_source", by_id)
    assert source == {
        "path": "ServerScriptService.Main",
        "instanceId": made["instanceId"],
        "className": "Script",
        "source": "return 1",
    }
    updated = await studio.output("script_update", {**by_id, "source": ""})
    assert (updated["updated"], updated["path"]) == (True, "ServerScriptService.Main")
    assert (await studio.output("script_get_source", by_id))["source"] == ""
    deleted = await studio.output("script_delete", {"scriptPath": "ServerScriptService.Main"})
    assert deleted == {
        "deleted": True,
        "path": "ServerScriptService.Main",
        "diffSummary": "delete ServerScriptService.Main",
    }
    assert (await studio.error("script_get_source", by_id))["code"] == "NOT_FOUND"


async def test_executing_a_module(studio: Any) -> None:
    identity = await studio.create_script(MODULE)
    call = {"scriptId": identity, "functionName": "add", "args": [2, 40]}
    done = await studio.output("script_execute", call)
    assert done == {
        "executed": True,
        "called": True,
        "path": "ServerScriptService.M",
        "instanceId": identity,
        "returnValue": 42,
    }
    nothing = await studio.output("script_execute", {**call, "functionName": "nothing"})
    assert nothing["returnValue"] is None  # present, so that a client can tell nil from no answer
    only = await studio.output("script_execute", {"scriptId": identity})
    assert (only["executed"], only["called"]) == (True, False)
    await studio.output("instance_create", {"parentPath": "Workspace", "className": "Part", "name": "Part"})
    assert (await studio.run("part"))["path"] == "Workspace.Part"
    assert await studio.run("deep") == [1, [2, [3, [4, [5, "<max-depth>"]]]]]
    many = await studio.run("many")
    assert (len(many), many["__truncated"]) == (129, True)
    odd = await studio.run("odd")
    assert (odd["inf"], odd["nested"]) == ("inf", {"a": True})
    assert odd["f"].startswith("function")


async def test_script_errors_have_their_error_codes(studio: Any) -> None:
    identity = await studio.create_script(MODULE)
    at = {"scriptId": identity}
    expected = await studio.error("script_execute", {**at, "functionName": "nothing", "expectReturn": True})
    assert (expected["code"], expected["kind"]) == ("VALIDATION_ERROR", "invalid_input")
    absent = await studio.error("script_execute", {**at, "functionName": "nope"})
    assert (absent["code"], absent["details"]["functionName"]) == ("NOT_FOUND", "nope")
    thrown = await studio.error("script_execute", {**at, "functionName": "boom"})
    assert (thrown["code"], thrown["retryable"], thrown["category"]) == ("INTERNAL_ERROR", True, "runtime")
    assert thrown["details"]["error"].endswith(":5: bang")
    bad = await studio.create_script("error('at load')", "Bad")
    loading = await studio.error("script_execute", {"scriptId": bad})
    assert (loading["code"], loading["retryable"]) == ("INTERNAL_ERROR", True)
    assert "at load" in loading["details"]["error"]
    unparsed = await studio.create_script("local = 1", "Unparsed")
    assert (await studio.error("script_execute", {"scriptId": unparsed}))["code"] == "INTERNAL_ERROR"
    workspace = await studio.error("script_execute", {"scriptPath": "Workspace"})
    assert (workspace["code"], workspace["message"]) == ("VALIDATION_ERROR", "target is not a script")


async def test_plain_script_runs_as_a_temporary_copy(studio: Any) -> None:
    identity = await studio.create_script("return 7", "Plain", "Script")
    assert (await studio.output("script_execute", {"scriptId": identity}))["returnValue"] == 7
    children = await studio.output("instance_list_children", {"parentPath": "ServerScriptService"})
    assert [child["name"] for child in children["children"]] == ["Plain"]


async def test_module_is_cached_unless_force_require_is_set(studio: Any) -> None:
    identity = await studio.create_script("_G.count = (_G.count or 0) + 1 return _G.count")
    at = {"scriptId": identity}
    assert [(await studio.output("script_execute", at))["returnValue"] for _ in range(2)] == [1, 1]
    assert (await studio.output("script_execute", {**at, "forceRequire": True}))["returnValue"] == 2


@pytest.mark.parametrize(
    ("tool", "arguments", "output"),
    [
        (
            "script_create",
            {"name": "S", "scriptType": "Script", "source": "x"},
            {"dryRun": True, "diffSummary": "create Script Workspace.S"},
        ),
        (
            "instance_create",
            {"name": "P", "className": "Part"},
            {"dryRun": True, "diffSummary": "create Part Workspace.P"},
        ),
    ],
)
async def test_dry_run_with_a_parent_id_creates_nothing(
    studio: Any, tool: str, arguments: dict[str, Any], output: dict[str, Any]
) -> None:
    parent = (await studio.output("instance_get", {"instancePath": "Workspace"}))["instance"]
    arguments = {"parentId": parent["instanceId"], **arguments}
    answer = await studio.call(tool, arguments, dryRun="true")
    assert answer["result"]["structuredContent"]["output"] == output
    assert answer["result"]["structuredContent"]["diff"] == {"summary": output["diffSummary"], "entries": []}
    assert (await studio.output("instance_get", {"instancePath": "Workspace"}))["instance"]["childCount"] == 0


async def test_dry_run_of_every_other_write_changes_nothing(studio: Any) -> None:
    identity = await studio.create_script("return 1")
    at = {"scriptId": identity}
    dry_runs = [
        ("script_update", {**at, "source": "return 2"}),
        ("script_delete", at),
        ("instance_delete", {"instanceId": identity}),
        ("instance_set_property", {"instanceId": identity, "propertyName": "Name", "value": "N"}),
    ]
    for tool, arguments in dry_runs:
        assert (await studio.output(tool, arguments, dryRun=True))["dryRun"] is True
    executed = await studio.output("script_execute", at, dryRun=True)
    path = "ServerScriptService.M"
    assert executed == {"dryRun": True, "path": path, "instanceId": identity, "diffSummary": f"execute {path}"}
    assert (await studio.output("script_get_source", at))["source"] == "return 1"


async def test_instances_from_creation_to_deletion(studio: Any) -> None:
    made = await studio.output("instance_create", {"parentPath": "Workspace", "className": "Folder", "name": "F"})
    inner = await studio.output(
        "instance_create", {"parentId": made["instanceId"], "className": "Part", "name": "with.dots"}
    )
    got = (await studio.output("instance_get", {"instanceId": inner["instanceId"]}))["instance"]
    assert got == {
        "instanceId": inner["instanceId"],
        "name": "with.dots",
        "className": "Part",
        "path": "Workspace.F.with.dots",
        "parentPath": "Workspace.F",
        "childCount": 0,
    }
    assert (await studio.error("instance_get", {"instancePath": "Workspace.F.with.dots"}))["code"] == "NOT_FOUND"
    both = {"instanceId": "inst-999", "instancePath": "Workspace.F"}
    assert (await studio.output("instance_get", both))["instance"]["name"] == "F"
    deleted = await studio.output("instance_delete", {"instanceId": made["instanceId"]})
    assert deleted == {"deleted": True, "path": "Workspace.F", "diffSummary": "delete Workspace.F"}
    for gone in (made["instanceId"], inner["instanceId"]):
        assert (await studio.error("instance_get", {"instanceId": gone}))["code"] == "NOT_FOUND"
    nonsense = {"parentPath": "Workspace", "className": "Nonsense", "name": "N"}
    assert (await studio.error("instance_create", nonsense))["code"] == "VALIDATION_ERROR"
    assert (await studio.error("instance_delete", {"instancePath": "Workspace"}))["code"] == "VALIDATION_ERROR"


async def test_lists_of_children_come_in_pages_of_at_most_500(studio: Any) -> None:
    filler = "for i = 1, 600 do local p = Instance.new('Folder') p.Name = 'c' .. i p.Parent = workspace end return true"
    await studio.output("script_execute", {"scriptId": await studio.create_script(filler)})
    first = await studio.output("instance_list_children", {"parentPath": "Workspace"})
    assert (first["limit"], first["count"], first["total"], first["nextOffset"]) == (100, 100, 600, 100)
    largest = await studio.output("instance_list_children", {"parentPath": "Workspace", "limit": 5000})
    assert (largest["limit"], largest["count"], largest["hasMore"]) == (500, 500, True)
    last = await studio.output("instance_list_children", {"parentPath": "Workspace", "offset": 590})
    assert (last["count"], last["hasMore"]) == (10, False)
    assert "nextOffset" not in last
    found = await studio.output("instance_find", {"rootPath": "game", "nameContains": "c60", "className": "Folder"})
    assert [match["name"] for match in found["matches"]] == ["c60", "c600"]
    page = await studio.output("instance_find", {"rootPath": "Workspace", "className": "Folder", "maxResults": 3})
    assert (page["limit"], page["count"], page["truncated"], page["nextOffset"]) == (3, 3, True, 3)


TYPED = [
    ("Part", "Size", {"_type": "Vector3", "x": 1, "y": 2, "z": 3}, "1, 2, 3"),
    ("Part", "Color", {"_type": "Color3", "r": 255, "g": 0, "b": 0}, "1, 0, 0"),
    ("Part", "Color", {"_type": "Color3Float", "r": 0.5}, "0.5, 0, 0"),
    ("Part", "CFrame", {"_type": "CFrame", "x": 1, "y": 2}, "1, 2, 0"),
    ("Part", "CFrame", {"_type": "CFrame", "components": [5, 6, 7, 1, 0, 0, 0, 1, 0, 0, 0, 1]}, "5, 6, 7"),
    ("Part", "BrickColor", {"_type": "BrickColor", "name": "Bright red"}, "Bright red"),
    ("Part", "Material", {"_type": "Enum", "enum": "Material", "value": "Neon"}, "Neon"),
    ("Part", "Material", {"_type": "Enum", "enum": "Material", "value": 288}, "Neon"),
    ("Part", "Anchored", True, "true"),
    ("Part", "Transparency", 0.5, "0.5"),
    ("Part", "CustomPhysicalProperties", {"_type": "PhysicalProperties"}, "0.7, 0.3, 0.5, 1, 1"),
    ("StringValue", "Value", "text", "text"),
    ("ObjectValue", "Value", {"_type": "Ref", "path": "Workspace"}, "Workspace"),
    ("RayValue", "Value", {"_type": "Ray", "oy": 1, "dz": 2}, "0, 1, 0, 0, 0, 2"),
    ("Frame", "AnchorPoint", {"_type": "Vector2", "x": 0.5}, "0.5, 0"),
    ("Frame", "Size", {"_type": "UDim2", "sx": 1, "oy": 20}, "1, 0, 0, 20"),
    ("UICorner", "CornerRadius", {"_type": "UDim", "offset": 8}, "0, 8"),
    ("ImageLabel", "SliceCenter", {"_type": "Rect", "x1": 4, "y1": 5}, "0, 0, 4, 5"),
    ("ImageLabel", "SliceCenter", {"_type": "RectFloat", "maxX": 4.5}, "0, 0, 4.5, 0"),
    ("ParticleEmitter", "Lifetime", {"_type": "NumberRange", "min": 1, "max": 2}, "1, 2"),
    ("ParticleEmitter", "Size", {"_type": "NumberSequence", "keypoints": [{"time": 0}, {"time": 1, "value": 2}]}, ""),
    ("ParticleEmitter", "Color", {"_type": "ColorSequence", "keypoints": [{"time": 0}, {"time": 1, "r": 9}]}, ""),
    ("ArcHandles", "Axes", {"_type": "Axes", "x": True}, ""),
    ("Handles", "Faces", {"_type": "Faces", "top": True, "front": True}, ""),
]
REFUSED = [
    ("Part", "Size", {"_type": "Vector4"}, "value coercion failed: unknown _type Vector4"),
    ("Part", "Size", {"x": 1}, "value coercion failed: unknown _type nil"),
    ("Part", "Size", {"_type": "Vector3", "x": "1"}, "value coercion failed: x must be a number"),
    ("Part", "Size", [1, 2, 3], "value coercion failed: unknown _type nil"),
    ("Part", "Size", {"_type": "Vector2"}, "failed to set property"),
    ("Part", "Size", "big", "failed to set property"),
    ("Part", "Nonsense", 1, "failed to set property"),
    ("Part", "ClassName", "Model", "failed to set property"),
    (
        "Part",
        "Material",
        {"_type": "Enum", "enum": "Material", "value": "No"},
        "value coercion failed: no Enum.Material.No",
    ),
    ("Part", "Material", {"_type": "Enum", "enum": "No", "value": "No"}, "value coercion failed: no Enum.No.No"),
    ("Part", "BrickColor", {"_type": "BrickColor"}, "value coercion failed: name is required"),
    ("Part", "BrickColor", {"_type": "BrickColor", "name": "No"}, "value coercion failed: no BrickColor is named No"),
    ("Part", "CFrame", {"_type": "CFrame", "components": [1]}, "value coercion failed: components must be 12 numbers"),
    ("Handles", "Faces", {"_type": "Faces"}, "value coercion failed: at least one flag must be true"),
    ("ObjectValue", "Value", {"_type": "Ref", "path": "No"}, "value coercion failed: Ref names no instance"),
    ("ParticleEmitter", "Size", {"_type": "NumberSequence"}, "value coercion failed: keypoints is required"),
    ("Part", "Size", None, "value is required"),
]


async def test_typed_values_are_set_or_rejected_as_in_studio(studio: Any) -> None:
    reader = "return {show = function(c, p) return tostring(workspace:FindFirstChild(c)[p]) end}"
    await studio.create_script(reader)
    for name in dict.fromkeys(row[0] for row in (*TYPED, *REFUSED)):
        await studio.output("instance_create", {"parentPath": "Workspace", "className": name, "name": name})
    for name, prop, value, shown in TYPED:
        arguments = {"instancePath": f"Workspace.{name}", "propertyName": prop, "value": value}
        output = await studio.output("instance_set_property", arguments)
        assert (output["updated"], output["propertyName"], output["path"]) == (True, prop, f"Workspace.{name}")
        assert await studio.run("show", name, prop) == shown, (name, prop)
    for name, prop, value, message in REFUSED:
        arguments = {"instancePath": f"Workspace.{name}", "propertyName": prop, "value": value}
        refusal = await studio.error("instance_set_property", arguments)
        assert (refusal["code"], refusal["message"]) == ("VALIDATION_ERROR", message), (name, prop, value)


async def test_every_write_is_one_undo_step_and_a_failed_write_is_cancelled(studio: Any) -> None:
    await studio.create_script(MODULE)
    await studio.output("instance_create", {"parentPath": "Workspace", "className": "Part", "name": "P"})
    bad = {"instancePath": "Workspace.P", "propertyName": "Size", "value": "big"}
    assert (await studio.error("instance_set_property", bad))["code"] == "VALIDATION_ERROR"
    await studio.output("instance_delete", {"instancePath": "Workspace.P"}, dryRun=True)
    assert await studio.run("recordings") == [
        {"name": "Gatehouse: create ModuleScript ServerScriptService.M", "operation": "Commit"},
        {"name": "Gatehouse: create Part Workspace.P", "operation": "Commit"},
        {"name": "Gatehouse: set Workspace.P.Size", "operation": "Cancel"},
    ]
