"""The backend with a real engine: verified values, recovery from hangs and crashes, cleanup and isolation."""

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

from backends.godot.engine.sandbox import supported_isolation
from backends.godot.text.scene import Scene
from tests.repo.documents import ROOT

SCENE = {"scenePath": "main.tscn"}
ENDLESS_SCRIPT = """extends Sprite2D
static var x := forever()
static func forever() -> int:
	while true:
		pass
	return 1
"""


def engine_pids(project: Path, *arguments: str) -> list[int]:
    """Return the ids of processes whose command line contains the project and the arguments."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                expected = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if all(each.encode() in expected for each in (str(project), *arguments)):
                found.append(int(entry.name))
    return found


async def test_values_are_written_as_the_engine_writes_them_and_read_back(engine_harness: Any) -> None:
    properties = {
        "position": {"x": 10, "y": 20.5},
        "rotation": 1,
        "modulate": "#ff8000",
        "texture_filter": 2,
        "visible": False,
        "texture": {"$resource": "GradientTexture2D", "props": {"width": 32}},
        "metadata/note": {"deep": [1, {"two": 2.5}]},
    }
    envelope = await engine_harness.call("edit_node", **SCENE, nodePath="Player", properties=properties)
    assert envelope["ok"], envelope["error"]
    assert envelope["execution"] == {"executor": "headless"}
    node = Scene((engine_harness.project / "main.tscn").read_text()).find("Player").section
    written = {each.name: each.value for each in node.properties}
    assert written["position"] == "Vector2(10, 20.5)"
    assert written["rotation"] == "1.0"
    assert written["texture"].startswith('SubResource("GradientTexture2D_')
    assert "1.0" not in written["metadata/note"]


async def test_values_that_the_engine_rejects_change_nothing(engine_harness: Any) -> None:
    before = (engine_harness.project / "main.tscn").read_bytes()
    for properties in (
        {"position": "here"},
        {"visible": "maybe"},
        {"no_such": 1},
        {"texture": "res://main.tscn"},
        {"position": {"$type": "Vector9"}},
        {"z_index": 1.5},
    ):
        assert (
            await engine_harness.error_code("edit_node", **SCENE, nodePath="Player", properties=properties)
            == "E_SCHEMA_VALIDATION"
        )
    assert (
        await engine_harness.error_code("edit_node", **SCENE, nodePath="Player", properties={"texture": "res://no.png"})
        == "E_NOT_FOUND"
    )
    assert await engine_harness.error_code("add_node", **SCENE, nodeType="Nod2D", nodeName="A") == "E_SCHEMA_VALIDATION"
    assert (
        await engine_harness.error_code("add_node", **SCENE, nodeType="Resource", nodeName="A") == "E_SCHEMA_VALIDATION"
    )
    assert (engine_harness.project / "main.tscn").read_bytes() == before


async def test_reading_a_scene_does_not_run_its_scripts(engine_harness: Any) -> None:
    script = 'extends Sprite2D\nfunc _init() -> void:\n\tFileAccess.open("res://ran", FileAccess.WRITE)\n'
    await engine_harness.call_ok("write_script", scriptPath="p.gd", content=script)
    await engine_harness.call_ok("attach_script", **SCENE, nodePath="Player", scriptPath="p.gd")
    await engine_harness.call_ok("edit_node", **SCENE, nodePath="Player", properties={"rotation": 2})
    await engine_harness.call_ok("godot_inspector_manager", action="inspect", **SCENE, nodePath="Player")
    assert not (engine_harness.project / "ran").exists()


async def test_endless_script_times_out_and_the_next_call_works(open_harness: Any, engine: Path) -> None:
    async with open_harness(godot_path=str(engine), task_timeout=4) as harness:
        (harness.project / "endless.gd").write_text(ENDLESS_SCRIPT)
        before = (harness.project / "main.tscn").read_bytes()
        envelope = await harness.call("attach_script", **SCENE, nodePath="Player", scriptPath="endless.gd")
        assert envelope["error"]["code"] == "E_TIMEOUT"
        assert envelope["error"]["retryable"] is True
        assert (harness.project / "main.tscn").read_bytes() == before
        assert len(engine_pids(harness.project)) <= 1  # only the replacement may be running
        await harness.call_ok("edit_node", **SCENE, nodePath="Player", properties={"rotation": 1})
        project = harness.project
    assert engine_pids(project) == []


async def test_cancelled_call_reverts_the_change_and_kills_the_hanging_engine(engine_harness: Any) -> None:
    (engine_harness.project / "endless.gd").write_text(ENDLESS_SCRIPT)
    scene = engine_harness.project / "main.tscn"
    before = scene.read_bytes()
    call = asyncio.create_task(
        engine_harness.call("attach_script", **SCENE, nodePath="Player", scriptPath="endless.gd")
    )
    async with asyncio.timeout(20):
        while scene.read_bytes() == before or not (hanging := engine_pids(engine_harness.project)):
            await asyncio.sleep(0.02)
        call.cancel()
        while scene.read_bytes() != before or set(hanging) & set(engine_pids(engine_harness.project)):
            await asyncio.sleep(0.02)


async def test_idle_engine_is_stopped(open_harness: Any, engine: Path) -> None:
    async with open_harness(godot_path=str(engine), idle_timeout=0.5) as harness:
        await harness.call_ok("edit_node", **SCENE, nodePath="Player", properties={"rotation": 1})
        async with asyncio.timeout(20):
            while engine_pids(harness.project):
                await asyncio.sleep(0.02)
        await harness.call_ok("edit_node", **SCENE, nodePath="Player", properties={"rotation": 2})


async def test_number_of_warm_engines_is_limited(open_harness: Any, engine: Path) -> None:
    async with open_harness(godot_path=str(engine), max_workers=1) as harness:
        other = harness.make_project("other")
        await harness.call_ok("edit_node", **SCENE, nodePath="Player", properties={"rotation": 1})
        await harness.call_ok(
            "edit_node", **SCENE, nodePath="Player", properties={"rotation": 1}, projectPath=str(other)
        )
        async with asyncio.timeout(20):
            while engine_pids(harness.project):
                await asyncio.sleep(0.02)
        assert len(engine_pids(other)) == 1


async def test_changed_project_settings_restart_the_engine(engine_harness: Any) -> None:
    script = "class_name Hero\nextends Node2D\n@export var power := 1\n"
    await engine_harness.call_ok("edit_node", **SCENE, nodePath="Player", properties={"rotation": 1})
    first = engine_pids(engine_harness.project)
    await engine_harness.call_ok("write_script", scriptPath="hero.gd", content=script)
    await engine_harness.call_ok("set_project_setting", key="application/config/description", value="new")
    await engine_harness.call_ok("edit_node", **SCENE, nodePath="Player", properties={"rotation": 2})
    assert not set(first) & set(engine_pids(engine_harness.project))


async def test_engine_crash_is_reported_and_the_next_call_starts_a_new_engine(engine_harness: Any) -> None:
    (engine_harness.project / "crash.gd").write_text(
        "extends Sprite2D\nstatic var x := fall()\nstatic func fall() -> int:\n\tOS.crash('test')\n\treturn 1\n"
    )
    before = (engine_harness.project / "main.tscn").read_bytes()
    assert (
        await engine_harness.error_code("attach_script", **SCENE, nodePath="Player", scriptPath="crash.gd")
        == "E_INTERNAL"
    )
    assert (engine_harness.project / "main.tscn").read_bytes() == before
    await engine_harness.call_ok("edit_node", **SCENE, nodePath="Player", properties={"rotation": 1})


async def test_project_deleted_while_its_engine_is_warm_is_not_found(engine_harness: Any) -> None:
    await engine_harness.call_ok("edit_node", **SCENE, nodePath="Player", properties={"rotation": 1})
    shutil.rmtree(engine_harness.project)
    assert (
        await engine_harness.error_code("edit_node", **SCENE, nodePath="Player", properties={"rotation": 2})
        == "E_NOT_FOUND"
    )
    assert not engine_harness.project.exists()


BLOCKING_SCRIPT = """extends Sprite2D
static var held := hold()
static func hold() -> int:
\tFileAccess.open("res://begun", FileAccess.WRITE)
\twhile FileAccess.file_exists("res://project.godot"):
\t\tOS.delay_msec(5)
\treturn 1
"""


async def test_project_deleted_during_a_call_is_not_found_and_stays_deleted(engine_harness: Any) -> None:
    (engine_harness.project / "holding.gd").write_text(BLOCKING_SCRIPT)
    call = asyncio.create_task(
        engine_harness.error_code("attach_script", **SCENE, nodePath="Player", scriptPath="holding.gd")
    )
    async with asyncio.timeout(30):
        while not (engine_harness.project / "begun").exists():
            await asyncio.sleep(0.02)
    shutil.rmtree(engine_harness.project)
    assert await call == "E_NOT_FOUND"
    assert not engine_harness.project.exists()


async def test_every_write_on_a_full_disk_is_an_internal_error_and_leaves_no_partial_file(
    engine: Path, tmp_path: Path
) -> None:
    """Uses a small tmpfs that is really full, in its own mount namespace."""
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
        pytest.skip("mount namespaces are not available")
    found = json.loads(out)
    assert found["codes"] == [*["E_INTERNAL"] * 7, "ok"]
    assert all(found["unchanged"].values())
    assert found["remaining"] == ["main.tscn", "old.gd", "project.godot"]


async def test_running_game_is_visible_only_to_its_tenant_and_stops_with_the_gateway(
    open_harness: Any, engine: Path
) -> None:
    async with open_harness(godot_path=str(engine), settings={"tenants": {"default": {}, "acme": {}}}) as ours:
        theirs = await ours.for_tenant("acme")
        theirs.make_project()
        script = 'extends Node2D\nfunc _ready() -> void:\n\tprint("hello from ours")\n\tpush_error("trouble")\n'
        await ours.call_ok("write_script", scriptPath="main.gd", content=script)
        await ours.call_ok("attach_script", **SCENE, nodePath=".", scriptPath="main.gd")
        assert (await ours.call_ok("run_project", scene="main.tscn"))["running"]
        output = await wait_for_output(ours, "hello from ours")
        assert any(each["message"] == "trouble" for each in output["errors"])
        assert (await theirs.call_ok("get_debug_output", projectPath=None))["output"] == []
        assert await theirs.error_code("stop_project", projectPath=None) == "E_NOT_FOUND"
        assert (await ours.call_ok("get_debug_output", projectPath=None))["running"]
        project = ours.project
        assert engine_pids(project)
    assert engine_pids(project) == []


async def wait_for_output(harness: Any, expected: str) -> dict[str, Any]:
    async with asyncio.timeout(20):
        while True:
            output = await harness.call_ok("get_debug_output", projectPath=None)
            if any(expected in line for line in output["output"]):
                return output


async def test_smoke_test_of_an_endless_game_ends_within_the_wait_time(engine_harness: Any) -> None:
    script = "extends Node2D\nfunc _ready() -> void:\n\twhile true:\n\t\tpass\n"
    await engine_harness.call_ok("write_script", scriptPath="loop.gd", content=script)
    await engine_harness.call_ok("attach_script", **SCENE, nodePath=".", scriptPath="loop.gd")
    result = await engine_harness.call_ok("godot_workspace_manager", action="smoke_test", scene="main.tscn", waitMs=200)
    assert result["endedByItself"] is False
    assert engine_pids(engine_harness.project, "res://main.tscn") == []


async def test_engine_does_not_inherit_the_gateways_environment(engine_harness: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("GATEHOUSE_SECRET_FOR_TEST", "hush")
    await engine_harness.call_ok("edit_node", **SCENE, nodePath="Player", properties={"rotation": 1})
    for pid in engine_pids(engine_harness.project):
        assert b"hush" not in Path(f"/proc/{pid}/environ").read_bytes()
        assert os.getsid(pid) != os.getsid(0)


async def test_operations_above_the_queue_limit_fail_with_a_retryable_error(open_harness: Any, engine: Path) -> None:
    async with open_harness(godot_path=str(engine), max_queue=1) as harness:
        calls = [
            harness.call("godot_code_manager", action="gdscript.eval_restricted", expression="1 + 1") for _ in range(2)
        ]
        await harness.call_ok("edit_node", **SCENE, nodePath="Player", properties={"rotation": 1})
        first = [harness.call("get_script_errors"), *calls]
        answers = await asyncio.gather(*first)
        assert all(answer["ok"] or answer["error"]["retryable"] for answer in answers)


async def test_expression_cannot_access_singletons(engine_harness: Any) -> None:
    for expression in ("OS.get_environment('PATH')", "Engine.get_version_info()", "ProjectSettings.get_setting('x')"):
        code = await engine_harness.error_code(
            "godot_code_manager", action="gdscript.eval_restricted", expression=expression
        )
        assert code == "E_PERMISSION_DENIED"
    result = await engine_harness.call_ok(
        "godot_code_manager", action="gdscript.eval_restricted", expression="Vector2(1, 2) * 2"
    )
    assert result["value"] == "Vector2(2, 4)"


ESCAPING_SCRIPT = """extends Node2D
func _ready() -> void:
\tprint("read: ", FileAccess.get_file_as_string("{secret}").length())
\tprint("write: ", FileAccess.open("{beside}", FileAccess.WRITE) != null)
\tprint("kill: ", OS.kill({pid}) == OK)
\tvar peer := StreamPeerTCP.new()
\tprint("connect: ", peer.connect_to_host("127.0.0.1", {port}) == OK and peer.poll() == OK and peer.get_status() == 2)
\tprint("own: ", FileAccess.open("res://own.txt", FileAccess.WRITE) != null)
"""


async def test_game_code_can_access_only_its_project(open_harness: Any, engine: Path) -> None:
    if not all(supported_isolation().values()):
        pytest.skip(f"this kernel lacks sandbox support: {supported_isolation()}")
    async with open_harness(godot_path=str(engine), settings={"tenants": {"default": {}, "acme": {}}}) as ours:
        theirs = await ours.for_tenant("acme")
        secret = theirs.make_project() / "main.tscn"
        # If the sandbox fails, the script kills this process and not the test.
        victim = await asyncio.create_subprocess_exec("/bin/sleep", "60")
        values = {
            "secret": secret,
            "beside": ours.root / "new.txt",
            "pid": victim.pid,
            "port": httpx.URL(ours.gateway.url).port,
        }
        await ours.call_ok("write_script", scriptPath="greedy.gd", content=ESCAPING_SCRIPT.format(**values))
        await ours.call_ok("attach_script", **SCENE, nodePath=".", scriptPath="greedy.gd")
        await ours.call_ok("run_project", scene="main.tscn")
        output = (await wait_for_output(ours, "own: "))["output"]
        attempts = dict(line.split(": ") for line in output if ": " in line)
        assert {name: attempts[name] for name in ("read", "write", "kill", "connect", "own")} == {
            "read": "0",
            "write": "false",
            "kill": "false",
            "connect": "false",
            "own": "true",
        }
        assert victim.returncode is None
        victim.kill()
        await victim.wait()
        assert (await ours.call_ok("system_health", projectPath=None))["sandbox"]["files"] is True
