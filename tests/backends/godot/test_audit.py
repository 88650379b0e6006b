"""The project's own record: every call, no secrets, bounded size."""

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from backends.godot.audit import AuditLog, redacted
from backends.godot.paths import Project
from backends.godot.refused_calls import Refusals
from gateway.contract import Caller, CurrentCall, RefusedCall
from gateway.errors import Fault, Kind


def lines(project: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (project / ".godot_mcp" / "audit.log").read_text().splitlines()]


async def test_good_and_refused_calls_are_recorded_under_their_correlation_id(studio: Any) -> None:
    good = await studio.call("get_node_tree", scenePath="main.tscn")
    bad = await studio.call("read_script", scriptPath="../secret.gd")
    first, second = lines(studio.project)
    assert (first["tool"], first["ok"]) == ("get_node_tree", True)
    assert first["correlationId"] == good["meta"]["correlationId"]
    assert (second["tool"], second["ok"]) == ("read_script", False)
    assert second["correlationId"] == bad["meta"]["correlationId"]
    assert second["error"] == {"code": "E_PERMISSION_DENIED"}
    assert second["args"]["scriptPath"] == "../secret.gd"


async def written(project: Path, count: int) -> list[dict[str, Any]]:
    """The log's lines once there are so many: those of refusals are written behind the answer's back."""
    async with asyncio.timeout(10):
        while not (project / ".godot_mcp" / "audit.log").exists() or len(lines(project)) < count:
            await asyncio.sleep(0.01)
    return lines(project)


async def test_a_call_that_the_gateway_itself_refuses_is_recorded_too(studio: Any) -> None:
    refused = await studio.call("add_node", scenePath="main.tscn", token="s3cr3t", nodeName=7)
    (line,) = await written(studio.project, 1)
    assert (line["tool"], line["ok"]) == ("add_node", False)
    assert line["correlationId"] == refused["meta"]["correlationId"]
    assert line["error"] == {"code": "E_SCHEMA_VALIDATION"}
    assert line["args"]["nodeName"] == 7
    assert line["args"]["token"] == "[redacted]"


async def test_so_is_a_write_in_a_read_only_tenant(studio_with: Any) -> None:
    async with studio_with(settings={"tenants": {"default": {"read_only": True}}}) as studio:
        assert await studio.code("remove_node", scenePath="main.tscn", nodePath="Player") == "E_PERMISSION_DENIED"
        (line,) = await written(studio.project, 1)
        assert (line["tool"], line["error"]) == ("remove_node", {"code": "E_PERMISSION_DENIED"})


async def test_a_refused_call_leaves_nothing_in_another_tenants_project(studio_with: Any) -> None:
    async with studio_with(settings={"tenants": {"default": {}, "acme": {}}}) as ours:
        theirs = await ours.of("acme")
        await theirs.call("add_node", projectPath=str(ours.project))
        theirs.make_project()
        await theirs.call("add_node")
        await written(theirs.project, 1)
        assert not (ours.project / ".godot_mcp").exists()


async def test_whoever_calls_too_often_does_not_fill_the_log_nor_the_memory() -> None:
    spawned: list[Any] = []
    desk: Any = SimpleNamespace(home=SimpleNamespace(spawn=spawned.append))
    refusals = Refusals(desk)

    def told(kind: Kind) -> None:
        refusals.told(RefusedCall(CurrentCall(Caller("a", "b"), "id", 0.0, {}), "add_node", {}, Fault(kind, "no")))

    told(Kind.RATE_LIMITED)
    assert spawned == []
    for _ in range(200):
        told(Kind.DENIED)
    assert len(spawned) == 64
    for work in spawned:
        work.close()


async def test_a_secret_among_the_arguments_is_not_written_anywhere(studio: Any) -> None:
    result = await studio.call("godot_sync_addon", token="s3cr3t-key")
    assert result["ok"]
    assert "s3cr3t-key" not in json.dumps(result)
    assert "s3cr3t-key" not in (studio.project / ".godot_mcp" / "audit.log").read_text()
    assert lines(studio.project)[0]["args"]["token"] == "[redacted]"


@pytest.mark.parametrize(
    "name",
    [
        "token",
        "authToken",
        "access_token",
        "API_KEY",
        "api-key",
        "apikey",
        "password",
        "passwd",
        "clientSecret",
        "privateKey",
    ],
)
def test_secrets_are_known_by_their_names_in_any_spelling(name: str) -> None:
    assert redacted({"a": [{name: "x", "kept": 1}]}) == {"a": [{name: "[redacted]", "kept": 1}]}
    assert "hush" not in redacted({"request_json": json.dumps({name: "hush"})})["request_json"]


def test_large_values_are_cut() -> None:
    assert len(redacted({"content": "x" * 10_000})["content"]) < 600


def test_a_full_log_is_set_aside_and_the_oldest_goes(tmp_path: Path) -> None:
    (tmp_path / "project.godot").touch()
    project = Project(tmp_path)
    log = AuditLog(max_bytes=1024, backups=2)
    for number in range(60):
        log.write(project, f"id-{number}", "tool", {}, {"ok": True, "summary": ""})
    folder = tmp_path / ".godot_mcp"
    assert sorted(path.name for path in folder.iterdir()) == ["audit.log", "audit.log.1", "audit.log.2"]
    assert all(path.stat().st_size <= 1024 for path in folder.iterdir())
    newest = json.loads((folder / "audit.log").read_text().splitlines()[-1])
    assert newest["correlationId"] == "id-59"


def test_a_link_in_place_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    root = tmp_path / "project"
    root.mkdir()
    (root / ".godot_mcp").symlink_to(tmp_path / "outside")
    AuditLog(1024, 1).write(Project(root), "id", "tool", {}, {"ok": True, "summary": ""})
    assert list((tmp_path / "outside").iterdir()) == []
