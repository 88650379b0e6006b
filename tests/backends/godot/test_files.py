"""Text edits, exports and settings through the gateway."""

import asyncio
from typing import Any

EVIL = r"^(a|a)*$"


async def test_dry_run_returns_a_preview_and_changes_nothing(harness: Any) -> None:
    (harness.project / "a.gd").write_text("var x = 1\nvar y = 1\n")
    edit = {"action": "file.edit", "filePath": "a.gd"}
    shown = await harness.call_ok("godot_code_manager", **edit, find="1", replace="2", dryRun=True)
    assert (shown["changed"], shown["replacements"]) == (False, 2)
    assert shown["preview"] == {"before": "var x = 1\nvar y = 1\n", "after": "var x = 2\nvar y = 2\n"}
    assert "2" not in (harness.project / "a.gd").read_text()
    await harness.call_ok(
        "godot_code_manager", **edit, find=r"var (\w)", replace=r"const \1", regex=True, maxReplacements=1
    )
    assert (harness.project / "a.gd").read_text() == "const x = 1\nvar y = 1\n"
    assert await harness.error_code("godot_code_manager", **edit, find="zzz", replace="") == "E_NOT_FOUND"
    assert (
        await harness.error_code("godot_code_manager", **edit, find="(", replace="", regex=True)
        == "E_SCHEMA_VALIDATION"
    )


async def test_catastrophic_pattern_times_out_without_blocking_other_calls(harness: Any) -> None:
    (harness.project / "a.gd").write_text("a" * 40 + "b")
    edit = {"action": "file.edit", "filePath": "a.gd", "find": EVIL, "replace": "", "regex": True}
    endless = asyncio.create_task(harness.error_code("godot_code_manager", **edit))
    assert (await harness.call_ok("get_project_info"))["name"] == "Meadow"
    assert not endless.done()
    assert await endless == "E_TIMEOUT"


async def test_export_cannot_overwrite_project_files(harness: Any) -> None:
    (harness.project / "export_presets.cfg").write_text('[preset.0]\n\nname="P"\nplatform="Linux"\n')
    for output in ("main.tscn", "project.godot", ".godot_mcp/audit.log", "addons/x.gd", "../out.pck"):
        assert await harness.error_code("export_project", preset="P", outputPath=output) == "E_PERMISSION_DENIED"


async def test_data_folder_and_engine_folders_cannot_be_edited(harness: Any) -> None:
    await harness.call_ok("list_scenes")
    for path in (".godot_mcp/audit.log.txt", ".git/config.txt", ".godot/x.cfg"):
        code = await harness.error_code("godot_code_manager", action="file.write", filePath=path, content="x")
        assert code == "E_PERMISSION_DENIED"


async def test_changing_settings_autoloads_and_input_actions_keeps_the_rest_of_the_file(harness: Any) -> None:
    before = (harness.project / "project.godot").read_text()
    (harness.project / "game.gd").write_text("extends Node\n")
    await harness.call_ok("manage_autoloads", action="add", name="Game", path="game.gd")
    await harness.call_ok(
        "manage_input_actions", action="add", name="jump", events=[{"type": "key", "keycode": "SPACE"}]
    )
    await harness.call_ok("set_project_setting", key="display/window/size/viewport_width", value="640")
    text = (harness.project / "project.godot").read_text()
    assert text.startswith(before.rstrip("\n"))
    assert 'Game="*res://game.gd"' in text
    assert '"physical_keycode":32' in text
    assert "window/size/viewport_width=640" in text
    listed = await harness.call_ok("manage_autoloads", action="list")
    assert listed["autoloads"] == [{"name": "Game", "path": "res://game.gd", "enabled": True}]
    await harness.call_ok("manage_autoloads", action="remove", name="Game")
    await harness.call_ok("manage_input_actions", action="remove", name="jump")
    assert "Game" not in (harness.project / "project.godot").read_text()
    code = await harness.error_code("set_project_setting", key="a/b]\n[evil", value="1")
    assert code == "E_SCHEMA_VALIDATION"


async def test_saved_data_is_loaded_and_missing_data_uses_the_default(harness: Any) -> None:
    save = {"action": "save_game_data", "key": "best", "value": {"score": [1, 2]}}
    await harness.call_ok("godot_project_config_manager", **save)
    found = await harness.call_ok("godot_project_config_manager", action="load_game_data", key="best")
    assert found["value"] == {"score": [1, 2]}
    missing = {"action": "load_game_data", "key": "none"}
    assert await harness.error_code("godot_project_config_manager", **missing) == "E_NOT_FOUND"
    assert (await harness.call_ok("godot_project_config_manager", **missing, defaultValue=7))["value"] == 7


async def test_renaming_a_scene_updates_references_to_it(open_harness: Any) -> None:
    async with open_harness(allow_dangerous_ops=True) as harness:
        await harness.call_ok("create_scene", scenePath="coin.tscn")
        await harness.call_ok("instance_scene", scenePath="main.tscn", instancePath="coin.tscn")
        rename = {"action": "scene.rename", "scenePath": "coin.tscn", "newScenePath": "items/coin.tscn"}
        assert (await harness.call_ok("godot_asset_manager", **rename))["updated"] == ["res://main.tscn"]
        assert 'path="res://items/coin.tscn"' in (harness.project / "main.tscn").read_text()


async def test_script_in_use_is_deleted_only_with_force(harness: Any) -> None:
    await harness.call_ok("write_script", scriptPath="p.gd", content="extends Node\n")
    await harness.call_ok("attach_script", scenePath="main.tscn", nodePath="Player", scriptPath="p.gd")
    assert await harness.error_code("delete_script", scriptPath="p.gd") == "E_PERMISSION_DENIED"
    assert (await harness.call_ok("delete_script", scriptPath="p.gd", force=True))["usedBy"] == ["res://main.tscn"]
