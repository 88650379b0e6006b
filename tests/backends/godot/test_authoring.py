"""Tools that build parts of a game, each on the real engine. What they write is read back by the engine."""

import json
from typing import Any

import pytest

from tests.backends.godot.authoring_rows import BUILDER_ROWS, LDTK, ROWS, SCENE, WALK
from tests.backends.godot.test_every_tool import png, run_rows


async def test_every_authoring_tool_writes_what_the_engine_reads(engine_harness: Any) -> None:
    project = engine_harness.project
    (project / "level.ldtk").write_text(json.dumps(LDTK))
    (project / "raw.png").write_bytes(png())
    (project / "space.tscn").write_text('[gd_scene format=3]\n\n[node name="Space" type="Node3D"]\n')
    await run_rows(engine_harness, ROWS)
    checked = await engine_harness.call_ok("validate_project")
    assert checked["valid"], checked["issues"]
    text = (project / "main.tscn").read_text()
    assert '"values": [Vector2(0, 0), Vector2(10, 5)]' in text
    assert 'metadata/keep = [1, &"name", Array[int]([1, 2])' in text
    assert "; a comment of the author's" in text
    buses = (project / "default_bus_layout.tres").read_text()
    assert "bus/1/volume_db = -12.0" in buses
    assert "room_size = 0.9" in buses
    animations = await engine_harness.call_ok(
        "godot_inspector_manager", action="animation.list", **SCENE, playerPath="Moves"
    )
    assert {each["name"]: each["tracks"] for each in animations["animations"]} == {"walk": 2, "fade": 1}


async def test_every_preset_of_the_builder_is_read_by_the_engine(engine_harness: Any) -> None:
    space = engine_harness.project / "space.tscn"
    space.write_text('[gd_scene format=3]\n\n[node name="Space" type="Node3D"]\n')
    await run_rows(engine_harness, BUILDER_ROWS)
    checked = await engine_harness.call_ok("validate_project")
    assert checked["valid"], checked["issues"]


async def test_a_new_key_changes_the_lines_of_its_track_alone(engine_harness: Any) -> None:
    scene = engine_harness.project / "main.tscn"
    for tool, arguments, _ in ROWS[:1] + ROWS[1:2] + ROWS[3:5]:
        await engine_harness.call_ok(tool, **arguments)
    before = scene.read_text().splitlines()
    await engine_harness.call_ok("set_keyframe", **SCENE, **WALK, trackIndex=0, time=1.5, value=[3, 4])
    after = scene.read_text().splitlines()
    assert len(after) == len(before)
    changed = [line for line, old in zip(after, before, strict=True) if line != old]
    assert [line.partition(":")[0] for line in changed] == ['"times"', '"transitions"', '"values"']


async def test_errors_of_a_shader_come_with_their_lines(engine_harness: Any) -> None:
    code = "shader_type canvas_item;\n\nvoid fragment() {\n\tCOLOR = vec4(nosuch);\n}\n"
    made = await engine_harness.call_ok(
        "godot_code_manager", action="shader.create", shaderPath="bad.gdshader", content=code
    )
    assert made["compiles"] is False
    assert made["errors"][0]["line"] == 4
    assert "nosuch" in made["errors"][0]["message"]


async def test_settings_have_the_types_of_the_engine(harness: Any) -> None:
    key = "display/window/size/viewport_width"
    for value in ("800", 800):
        await harness.call_ok("set_project_setting", key=key, value=str(value))
        assert f"size/viewport_width={800}\n" in (harness.project / "project.godot").read_text()
    assert await harness.error_code("set_project_setting", key=key, value="abc") == "E_SCHEMA_VALIDATION"
    found = await harness.call_ok("get_project_settings", key=key)
    assert (found["value"], found["type"], found["default"]) == (800, "int", False)
    found = await harness.call_ok("get_project_settings", key="display/window/size/viewport_height")
    assert (found["value"], found["default"]) == (648, True)
    assert await harness.error_code("get_project_settings", key="no/such") == "E_NOT_FOUND"


async def test_failed_batch_is_not_ok_and_has_the_outcome_of_each_part(harness: Any) -> None:
    operations = [{"tool": "list_scenes", "args": {}}, {"tool": "read_script", "args": {"scriptPath": "no.gd"}}]
    envelope = await harness.call("batch_operations", operations=operations)
    assert envelope["ok"] is False
    assert envelope["result"] is None
    assert envelope["error"]["code"] == "E_NOT_FOUND"
    assert [each["success"] for each in envelope["details"]["results"]] == [True, False]


async def test_new_project_ignores_the_caches_of_engine_and_gateway(harness: Any) -> None:
    folder = harness.root / "fresh"
    await harness.call_ok("create_project", projectPath=str(folder), name="Fresh")
    assert (folder / ".gitignore").read_text().splitlines()[1:] == [".godot/", ".godot_mcp/"]


@pytest.mark.parametrize("existing", [False, True])
async def test_script_that_cannot_be_checked_is_put_back(open_harness: Any, engine: Any, existing: bool) -> None:
    endless = "extends Node\nstatic var x = spin()\nstatic func spin() -> int:\n\twhile true:\n\t\tpass\n\treturn 1\n"
    async with open_harness(godot_path=str(engine), task_timeout=1.5) as harness:
        path = harness.project / "loop.gd"
        if existing:
            path.write_text("extends Node\n")
        code = await harness.error_code("write_script", scriptPath="loop.gd", content=endless, overwrite=existing)
        assert code == "E_TIMEOUT"
        assert (path.read_text() == "extends Node\n") if existing else not path.exists()
