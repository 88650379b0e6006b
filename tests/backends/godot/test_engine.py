"""What the engine is trusted with: values read back, hangs and crashes survived, nothing left behind."""

import asyncio
import json
import os
import shutil
import sys
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

import httpx
import pytest

from backends.godot.engine.sandbox import found
from backends.godot.text.scene import Scene
from tests.house.documents import ROOT

S = {"scenePath": "main.tscn"}
ENDLESS = """extends Sprite2D
static var x := forever()
static func forever() -> int:
	while true:
		pass
	return 1
"""


def engines_of(project: Path, *more: str) -> list[int]:
    """The processes whose command line names this project, and what else is given."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if all(each.encode() in words for each in (str(project), *more)):
                found.append(int(entry.name))
    return found


async def test_values_are_written_as_the_engine_writes_them_and_read_back(real: Any) -> None:
    properties = {
        "position": {"x": 10, "y": 20.5},
        "rotation": 1,
        "modulate": "#ff8000",
        "texture_filter": 2,
        "visible": False,
        "texture": {"$resource": "GradientTexture2D", "props": {"width": 32}},
        "metadata/note": {"deep": [1, {"two": 2.5}]},
    }
    envelope = await real.call("edit_node", **S, nodePath="Player", properties=properties)
    assert envelope["ok"], envelope["error"]
    assert envelope["execution"] == {"executor": "headless"}
    node = Scene((real.project / "main.tscn").read_text()).find("Player").section
    written = {each.name: each.value for each in node.properties}
    assert written["position"] == "Vector2(10, 20.5)"
    assert written["rotation"] == "1.0"
    assert written["texture"].startswith('SubResource("GradientTexture2D_')
    assert "1.0" not in written["metadata/note"]


async def test_values_that_the_engine_does_not_take_change_nothing(real: Any) -> None:
    before = (real.project / "main.tscn").read_bytes()
    for properties in (
        {"position": "here"},
        {"visible": "maybe"},
        {"no_such": 1},
        {"texture": "res://main.tscn"},
        {"position": {"$type": "Vector9"}},
        {"z_index": 1.5},
    ):
        assert await real.code("edit_node", **S, nodePath="Player", properties=properties) == "E_SCHEMA_VALIDATION"
    assert await real.code("edit_node", **S, nodePath="Player", properties={"texture": "res://no.png"}) == "E_NOT_FOUND"
    assert await real.code("add_node", **S, nodeType="Nod2D", nodeName="A") == "E_SCHEMA_VALIDATION"
    assert await real.code("add_node", **S, nodeType="Resource", nodeName="A") == "E_SCHEMA_VALIDATION"
    assert (real.project / "main.tscn").read_bytes() == before


async def test_reading_a_scene_does_not_run_its_scripts(real: Any) -> None:
    script = 'extends Sprite2D\nfunc _init() -> void:\n\tFileAccess.open("res://ran", FileAccess.WRITE)\n'
    await real.good("write_script", scriptPath="p.gd", content=script)
    await real.good("attach_script", **S, nodePath="Player", scriptPath="p.gd")
    await real.good("edit_node", **S, nodePath="Player", properties={"rotation": 2})
    await real.good("godot_inspector_manager", action="inspect", **S, nodePath="Player")
    assert not (real.project / "ran").exists()


async def test_an_endless_script_is_ended_and_the_next_call_works(studio_with: Any, engine: Path) -> None:
    async with studio_with(godot_path=str(engine), task_timeout=4) as studio:
        (studio.project / "endless.gd").write_text(ENDLESS)
        before = (studio.project / "main.tscn").read_bytes()
        envelope = await studio.call("attach_script", **S, nodePath="Player", scriptPath="endless.gd")
        assert envelope["error"]["code"] == "E_TIMEOUT"
        assert envelope["error"]["retryable"] is True
        assert (studio.project / "main.tscn").read_bytes() == before
        assert len(engines_of(studio.project)) <= 1  # the one that came after it
        await studio.good("edit_node", **S, nodePath="Player", properties={"rotation": 1})
        project = studio.project
    assert engines_of(project) == []


async def test_a_caller_that_leaves_takes_the_change_and_the_hanging_engine_with_it(real: Any) -> None:
    (real.project / "endless.gd").write_text(ENDLESS)
    scene = real.project / "main.tscn"
    before = scene.read_bytes()
    call = asyncio.create_task(real.call("attach_script", **S, nodePath="Player", scriptPath="endless.gd"))
    async with asyncio.timeout(20):
        while scene.read_bytes() == before or not (hanging := engines_of(real.project)):
            await asyncio.sleep(0.02)
        call.cancel()
        while scene.read_bytes() != before or set(hanging) & set(engines_of(real.project)):
            await asyncio.sleep(0.02)


async def test_an_engine_that_nobody_uses_is_ended(studio_with: Any, engine: Path) -> None:
    async with studio_with(godot_path=str(engine), idle_timeout=0.5) as studio:
        await studio.good("edit_node", **S, nodePath="Player", properties={"rotation": 1})
        async with asyncio.timeout(20):
            while engines_of(studio.project):
                await asyncio.sleep(0.02)
        await studio.good("edit_node", **S, nodePath="Player", properties={"rotation": 2})


async def test_only_so_many_engines_are_kept_warm(studio_with: Any, engine: Path) -> None:
    async with studio_with(godot_path=str(engine), max_workers=1) as studio:
        other = studio.make_project("other")
        await studio.good("edit_node", **S, nodePath="Player", properties={"rotation": 1})
        await studio.good("edit_node", **S, nodePath="Player", properties={"rotation": 1}, projectPath=str(other))
        async with asyncio.timeout(20):
            while engines_of(studio.project):
                await asyncio.sleep(0.02)
        assert len(engines_of(other)) == 1


async def test_a_change_of_the_settings_is_seen_by_the_next_operation(real: Any) -> None:
    script = "class_name Hero\nextends Node2D\n@export var power := 1\n"
    await real.good("edit_node", **S, nodePath="Player", properties={"rotation": 1})
    first = engines_of(real.project)
    await real.good("write_script", scriptPath="hero.gd", content=script)
    await real.good("set_project_setting", key="application/config/description", value="new")
    await real.good("edit_node", **S, nodePath="Player", properties={"rotation": 2})
    assert not set(first) & set(engines_of(real.project))


async def test_a_crash_of_the_engine_is_told_and_the_next_call_gets_a_new_one(real: Any) -> None:
    (real.project / "crash.gd").write_text(
        "extends Sprite2D\nstatic var x := fall()\nstatic func fall() -> int:\n\tOS.crash('test')\n\treturn 1\n"
    )
    before = (real.project / "main.tscn").read_bytes()
    assert await real.code("attach_script", **S, nodePath="Player", scriptPath="crash.gd") == "E_INTERNAL"
    assert (real.project / "main.tscn").read_bytes() == before
    await real.good("edit_node", **S, nodePath="Player", properties={"rotation": 1})


async def test_a_project_deleted_while_its_engine_is_warm_is_not_found(real: Any) -> None:
    await real.good("edit_node", **S, nodePath="Player", properties={"rotation": 1})
    shutil.rmtree(real.project)
    assert await real.code("edit_node", **S, nodePath="Player", properties={"rotation": 2}) == "E_NOT_FOUND"
    assert not real.project.exists()


HOLDING = """extends Sprite2D
static var held := hold()
static func hold() -> int:
\tFileAccess.open("res://begun", FileAccess.WRITE)
\twhile FileAccess.file_exists("res://project.godot"):
\t\tOS.delay_msec(5)
\treturn 1
"""


async def test_a_project_deleted_in_the_middle_of_a_call_is_not_found_and_stays_deleted(real: Any) -> None:
    (real.project / "holding.gd").write_text(HOLDING)
    call = asyncio.create_task(real.code("attach_script", **S, nodePath="Player", scriptPath="holding.gd"))
    async with asyncio.timeout(30):
        while not (real.project / "begun").exists():
            await asyncio.sleep(0.02)
    shutil.rmtree(real.project)
    assert await call == "E_NOT_FOUND"
    assert not real.project.exists()


async def test_on_a_full_disk_every_write_is_an_internal_error_and_leaves_nothing_half_written(
    engine: Path, tmp_path: Path
) -> None:
    """On a small disk that really is full, in a mount namespace of its own."""
    for folder in ("data", "disk"):
        (tmp_path / folder).mkdir()
    script = (sys.executable, "-m", "tests.backends.godot.full_disk")
    places = (str(tmp_path / "data"), str(tmp_path / "disk"), str(engine))
    try:
        process = await asyncio.create_subprocess_exec(
            "unshare", "--map-root-user", "--mount", *script, *places, stdout=PIPE, stderr=PIPE, cwd=ROOT
        )
    except FileNotFoundError:
        pytest.skip("unshare is not installed")
    out, err = await process.communicate()
    if b"unshare failed" in err or b"mount:" in err:
        pytest.skip("no mount namespaces here")
    found = json.loads(out)
    assert found["codes"] == [*["E_INTERNAL"] * 7, "ok"]
    assert all(found["kept"].values())
    assert found["left"] == ["main.tscn", "old.gd", "project.godot"]


async def test_a_game_that_runs_is_seen_by_its_tenant_only_and_ends_with_the_gateway(
    studio_with: Any, engine: Path
) -> None:
    async with studio_with(godot_path=str(engine), settings={"tenants": {"default": {}, "acme": {}}}) as ours:
        theirs = await ours.of("acme")
        theirs.make_project()
        script = 'extends Node2D\nfunc _ready() -> void:\n\tprint("hello from ours")\n\tpush_error("trouble")\n'
        await ours.good("write_script", scriptPath="main.gd", content=script)
        await ours.good("attach_script", **S, nodePath=".", scriptPath="main.gd")
        assert (await ours.good("run_project", scene="main.tscn"))["running"]
        output = await said(ours, "hello from ours")
        assert any(each["message"] == "trouble" for each in output["errors"])
        assert (await theirs.good("get_debug_output", projectPath=None))["output"] == []
        assert await theirs.code("stop_project", projectPath=None) == "E_NOT_FOUND"
        assert (await ours.good("get_debug_output", projectPath=None))["running"]
        project = ours.project
        assert engines_of(project)
    assert engines_of(project) == []


async def said(studio: Any, words: str) -> dict[str, Any]:
    async with asyncio.timeout(20):
        while True:
            output = await studio.good("get_debug_output", projectPath=None)
            if any(words in line for line in output["output"]):
                return output


async def test_a_smoke_test_of_an_endless_game_ends_in_time_and_reports_errors(real: Any) -> None:
    script = "extends Node2D\nfunc _ready() -> void:\n\twhile true:\n\t\tpass\n"
    await real.good("write_script", scriptPath="loop.gd", content=script)
    await real.good("attach_script", **S, nodePath=".", scriptPath="loop.gd")
    result = await real.good("godot_workspace_manager", action="smoke_test", scene="main.tscn", waitMs=200)
    assert result["endedByItself"] is False
    assert engines_of(real.project, "res://main.tscn") == []


async def test_the_engine_sees_nothing_of_the_gateways_environment(real: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("GATEHOUSE_SECRET_FOR_TEST", "hush")
    await real.good("edit_node", **S, nodePath="Player", properties={"rotation": 1})
    for pid in engines_of(real.project):
        assert b"hush" not in Path(f"/proc/{pid}/environ").read_bytes()
        assert os.getsid(pid) != os.getsid(0)


async def test_more_operations_than_may_wait_are_refused_and_may_be_tried_again(studio_with: Any, engine: Path) -> None:
    async with studio_with(godot_path=str(engine), max_queue=1) as studio:
        calls = [
            studio.call("godot_code_manager", action="gdscript.eval_restricted", expression="1 + 1") for _ in range(2)
        ]
        await studio.good("edit_node", **S, nodePath="Player", properties={"rotation": 1})
        first = [studio.call("get_script_errors"), *calls]
        answers = await asyncio.gather(*first)
        assert all(answer["ok"] or answer["error"]["retryable"] for answer in answers)


async def test_an_expression_reaches_no_singleton(real: Any) -> None:
    for expression in ("OS.get_environment('PATH')", "Engine.get_version_info()", "ProjectSettings.get_setting('x')"):
        code = await real.code("godot_code_manager", action="gdscript.eval_restricted", expression=expression)
        assert code == "E_PERMISSION_DENIED"
    result = await real.good("godot_code_manager", action="gdscript.eval_restricted", expression="Vector2(1, 2) * 2")
    assert result["value"] == "Vector2(2, 4)"


GREEDY = """extends Node2D
func _ready() -> void:
\tprint("read: ", FileAccess.get_file_as_string("{secret}").length())
\tprint("write: ", FileAccess.open("{beside}", FileAccess.WRITE) != null)
\tprint("kill: ", OS.kill({pid}) == OK)
\tvar peer := StreamPeerTCP.new()
\tprint("connect: ", peer.connect_to_host("127.0.0.1", {port}) == OK and peer.poll() == OK and peer.get_status() == 2)
\tprint("own: ", FileAccess.open("res://own.txt", FileAccess.WRITE) != null)
"""


async def test_a_games_code_reaches_its_project_and_nothing_else(studio_with: Any, engine: Path) -> None:
    if not all(found().values()):
        pytest.skip(f"this kernel lacks walls: {found()}")
    async with studio_with(godot_path=str(engine), settings={"tenants": {"default": {}, "acme": {}}}) as ours:
        theirs = await ours.of("acme")
        secret = theirs.make_project() / "main.tscn"
        # Whatever goes wrong, the kill reaches a process of the test's own and not the test.
        victim = await asyncio.create_subprocess_exec("/bin/sleep", "60")
        given = {
            "secret": secret,
            "beside": ours.root / "new.txt",
            "pid": victim.pid,
            "port": httpx.URL(ours.gateway.url).port,
        }
        await ours.good("write_script", scriptPath="greedy.gd", content=GREEDY.format(**given))
        await ours.good("attach_script", **S, nodePath=".", scriptPath="greedy.gd")
        await ours.good("run_project", scene="main.tscn")
        output = (await said(ours, "own: "))["output"]
        tried = dict(line.split(": ") for line in output if ": " in line)
        assert {name: tried[name] for name in ("read", "write", "kill", "connect", "own")} == {
            "read": "0",
            "write": "false",
            "kill": "false",
            "connect": "false",
            "own": "true",
        }
        assert victim.returncode is None
        victim.kill()
        await victim.wait()
        assert (await ours.good("system_health", projectPath=None))["sandbox"]["files"] is True
