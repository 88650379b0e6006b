"""The project's own record: every call, no secrets, bounded size."""

import json
from pathlib import Path
from typing import Any

import pytest

from backends.godot.audit import AuditLog, redacted
from backends.godot.paths import Project


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
