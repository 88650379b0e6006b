"""The project's audit log: it records every call, redacts secrets and has a bounded size."""

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from backends.godot.audit import AuditLog, redact
from backends.godot.paths import Project
from backends.godot.refused_calls import RefusedCallAudit
from gateway.contract import Caller, CurrentCall, RefusedCall
from gateway.errors import Fault, Kind


def audit_lines(project: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (project / ".godot_mcp" / "audit.log").read_text().splitlines()]


async def test_successful_and_failed_calls_are_recorded_with_their_correlation_id(harness: Any) -> None:
    success = await harness.call("get_node_tree", scenePath="main.tscn")
    failure = await harness.call("read_script", scriptPath="../secret.gd")
    first, second = audit_lines(harness.project)
    assert (first["tool"], first["ok"]) == ("get_node_tree", True)
    assert first["correlationId"] == success["meta"]["correlationId"]
    assert (second["tool"], second["ok"]) == ("read_script", False)
    assert second["correlationId"] == failure["meta"]["correlationId"]
    assert second["error"] == {"code": "E_PERMISSION_DENIED"}
    assert second["args"]["scriptPath"] == "../secret.gd"


async def wait_for_lines(project: Path, count: int) -> list[dict[str, Any]]:
    """Wait until the log has `count` lines. Refused calls are recorded after the response."""
    async with asyncio.timeout(10):
        while not (project / ".godot_mcp" / "audit.log").exists() or len(audit_lines(project)) < count:
            await asyncio.sleep(0.01)
    return audit_lines(project)


async def test_call_refused_by_the_gateway_is_recorded(harness: Any) -> None:
    refused = await harness.call("add_node", scenePath="main.tscn", token="s3cr3t", nodeName=7)
    (line,) = await wait_for_lines(harness.project, 1)
    assert (line["tool"], line["ok"]) == ("add_node", False)
    assert line["correlationId"] == refused["meta"]["correlationId"]
    assert line["error"] == {"code": "E_SCHEMA_VALIDATION"}
    assert line["args"]["nodeName"] == 7
    assert line["args"]["token"] == "[redacted]"


async def test_write_in_a_read_only_tenant_is_recorded(open_harness: Any) -> None:
    async with open_harness(settings={"tenants": {"default": {"read_only": True}}}) as harness:
        assert (
            await harness.error_code("remove_node", scenePath="main.tscn", nodePath="Player") == "E_PERMISSION_DENIED"
        )
        (line,) = await wait_for_lines(harness.project, 1)
        assert (line["tool"], line["error"]) == ("remove_node", {"code": "E_PERMISSION_DENIED"})


async def test_refused_call_writes_nothing_into_another_tenants_project(open_harness: Any) -> None:
    async with open_harness(settings={"tenants": {"default": {}, "acme": {}}}) as ours:
        theirs = await ours.for_tenant("acme")
        await theirs.call("add_node", projectPath=str(ours.project))
        theirs.make_project()
        await theirs.call("add_node")
        await wait_for_lines(theirs.project, 1)
        assert not (ours.project / ".godot_mcp").exists()


async def test_rate_limited_calls_are_not_recorded_and_pending_writes_are_bounded() -> None:
    spawned: list[Any] = []
    services: Any = SimpleNamespace(host=SimpleNamespace(spawn=spawned.append))
    audit = RefusedCallAudit(services)

    def record(kind: Kind) -> None:
        audit.record(RefusedCall(CurrentCall(Caller("a", "b"), "id", 0.0, {}), "add_node", {}, Fault(kind, "no")))

    record(Kind.RATE_LIMITED)
    assert spawned == []
    for _ in range(200):
        record(Kind.DENIED)
    assert len(spawned) == 64
    for work in spawned:
        work.close()


async def test_secret_argument_is_not_logged_or_returned(harness: Any) -> None:
    result = await harness.call("godot_sync_addon", token="s3cr3t-key")
    assert result["ok"]
    assert "s3cr3t-key" not in json.dumps(result)
    assert "s3cr3t-key" not in (harness.project / ".godot_mcp" / "audit.log").read_text()
    assert audit_lines(harness.project)[0]["args"]["token"] == "[redacted]"


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
def test_secrets_are_redacted_by_key_in_any_spelling(name: str) -> None:
    assert redact({"a": [{name: "x", "kept": 1}]}) == {"a": [{name: "[redacted]", "kept": 1}]}
    assert "hush" not in redact({"request_json": json.dumps({name: "hush"})})["request_json"]


def test_large_values_are_truncated() -> None:
    assert len(redact({"content": "x" * 10_000})["content"]) < 600


def test_full_log_is_rotated_and_the_oldest_backup_is_deleted(tmp_path: Path) -> None:
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


def test_symlink_instead_of_the_data_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    root = tmp_path / "project"
    root.mkdir()
    (root / ".godot_mcp").symlink_to(tmp_path / "outside")
    AuditLog(1024, 1).write(Project(root), "id", "tool", {}, {"ok": True, "summary": ""})
    assert list((tmp_path / "outside").iterdir()) == []
