"""Text files through the gateway: edits, exports, settings."""

import asyncio
from typing import Any

EVIL = r"^(a|a)*$"


async def test_a_dry_run_shows_what_would_change_and_changes_nothing(studio: Any) -> None:
    (studio.project / "a.gd").write_text("var x = 1\nvar y = 1\n")
    edit = {"action": "file.edit", "filePath": "a.gd"}
    shown = await studio.good("godot_code_manager", **edit, find="1", replace="2", dryRun=True)
    assert (shown["changed"], shown["replacements"]) == (False, 2)
    assert shown["preview"] == {"before": "var x = 1\nvar y = 1\n", "after": "var x = 2\nvar y = 2\n"}
    assert "2" not in (studio.project / "a.gd").read_text()
    await studio.good(
        "godot_code_manager", **edit, find=r"var (\w)", replace=r"const \1", regex=True, maxReplacements=1
    )
    assert (studio.project / "a.gd").read_text() == "const x = 1\nvar y = 1\n"
    assert await studio.code("godot_code_manager", **edit, find="zzz", replace="") == "E_NOT_FOUND"
    assert await studio.code("godot_code_manager", **edit, find="(", replace="", regex=True) == "E_SCHEMA_VALIDATION"


async def test_a_pattern_without_end_is_ended_and_others_are_served_meanwhile(studio: Any) -> None:
    (studio.project / "a.gd").write_text("a" * 40 + "b")
    edit = {"action": "file.edit", "filePath": "a.gd", "find": EVIL, "replace": "", "regex": True}
    endless = asyncio.create_task(studio.code("godot_code_manager", **edit))
    assert (await studio.good("get_project_info"))["name"] == "Meadow"
    assert not endless.done()
    assert await endless == "E_TIMEOUT"


async def test_an_export_may_not_take_the_place_of_the_projects_files(studio: Any) -> None:
    (studio.project / "export_presets.cfg").write_text('[preset.0]\n\nname="P"\nplatform="Linux"\n')
    for output in ("main.tscn", "project.godot", ".godot_mcp/audit.log", "addons/x.gd", "../out.pck"):
        assert await studio.code("export_project", preset="P", outputPath=output) == "E_PERMISSION_DENIED"


async def test_our_own_folder_and_the_engines_are_not_edited_as_text(studio: Any) -> None:
    await studio.good("list_scenes")
    for path in (".godot_mcp/audit.log.txt", ".git/config.txt", ".godot/x.cfg"):
        code = await studio.code("godot_code_manager", action="file.write", filePath=path, content="x")
        assert code == "E_PERMISSION_DENIED"


async def test_settings_autoloads_and_input_actions_keep_the_rest_of_the_file(studio: Any) -> None:
    before = (studio.project / "project.godot").read_text()
    (studio.project / "game.gd").write_text("extends Node\n")
    await studio.good("manage_autoloads", action="add", name="Game", path="game.gd")
    await studio.good("manage_input_actions", action="add", name="jump", events=[{"type": "key", "keycode": "SPACE"}])
    await studio.good("set_project_setting", key="display/window/size/viewport_width", value="640")
    text = (studio.project / "project.godot").read_text()
    assert text.startswith(before.rstrip("\n"))
    assert 'Game="*res://game.gd"' in text
    assert '"physical_keycode":32' in text
    assert "window/size/viewport_width=640" in text
    listed = await studio.good("manage_autoloads", action="list")
    assert listed["autoloads"] == [{"name": "Game", "path": "res://game.gd", "enabled": True}]
    await studio.good("manage_autoloads", action="remove", name="Game")
    await studio.good("manage_input_actions", action="remove", name="jump")
    assert "Game" not in (studio.project / "project.godot").read_text()
    code = await studio.code("set_project_setting", key="a/b]\n[evil", value="1")
    assert code == "E_SCHEMA_VALIDATION"


async def test_saved_data_is_read_back_and_missing_data_has_a_default(studio: Any) -> None:
    save = {"action": "save_game_data", "key": "best", "value": {"score": [1, 2]}}
    await studio.good("godot_project_config_manager", **save)
    found = await studio.good("godot_project_config_manager", action="load_game_data", key="best")
    assert found["value"] == {"score": [1, 2]}
    missing = {"action": "load_game_data", "key": "none"}
    assert await studio.code("godot_project_config_manager", **missing) == "E_NOT_FOUND"
    assert (await studio.good("godot_project_config_manager", **missing, defaultValue=7))["value"] == 7


async def test_renaming_a_scene_tells_those_who_use_it(studio_with: Any) -> None:
    async with studio_with(allow_dangerous_ops=True) as studio:
        await studio.good("create_scene", scenePath="coin.tscn")
        await studio.good("instance_scene", scenePath="main.tscn", instancePath="coin.tscn")
        rename = {"action": "scene.rename", "scenePath": "coin.tscn", "newScenePath": "items/coin.tscn"}
        assert (await studio.good("godot_asset_manager", **rename))["updated"] == ["res://main.tscn"]
        assert 'path="res://items/coin.tscn"' in (studio.project / "main.tscn").read_text()


async def test_a_script_in_use_is_deleted_only_by_force(studio: Any) -> None:
    await studio.good("write_script", scriptPath="p.gd", content="extends Node\n")
    await studio.good("attach_script", scenePath="main.tscn", nodePath="Player", scriptPath="p.gd")
    assert await studio.code("delete_script", scriptPath="p.gd") == "E_PERMISSION_DENIED"
    assert (await studio.good("delete_script", scriptPath="p.gd", force=True))["usedBy"] == ["res://main.tscn"]
