"""Audit records exported as OTLP log records: every committed record is sent once, with its position in the chain."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.state.audit_chain import AuditKey
from gateway.state.audit_sqlite import SqliteAuditTables, migrate_file
from tests.flows.process import run as command
from tests.flows.process import write_settings
from tests.peers.collector import COLLECTORS, Collector, attributes

CORE = {"core": {"module": "backends.core"}, "plain": {"module": "tests.flows.fixtures.plain"}}
SECRET = "swordfish-4711"


@pytest.fixture(params=["http", "grpc"])
def collector(request: pytest.FixtureRequest) -> Iterator[Collector]:
    with COLLECTORS[request.param]() as collector:
        collector.protocol = request.param
        yield collector


def otlp(collector: Any) -> dict[str, Any]:
    target = {"url": collector.url, "protocol": collector.protocol, "audit": True}
    return {"otlp": {**target, "traces": False, "metrics": False}, "store": {"enabled": False}}


async def read_records(folder: Path) -> list[dict[str, Any]]:
    file = SqliteAuditTables(await migrate_file(folder), AuditKey(b""))
    try:
        return list(file.records())
    finally:
        file.close()


def hashes(collector: Any) -> list[str]:
    return [attributes(each)["gatehouse.audit.hash"] for each in collector.logs()]


async def test_every_committed_record_is_exported_without_the_call_arguments(
    start: Any, collector: Any, tmp_path: Path
) -> None:
    async with start(backends=CORE, telemetry=otlp(collector)) as gateway:
        await gateway.call("plain_echo", {"text": SECRET}, {"correlationId": "abc", "actor": "ci"})
        reader = gateway.as_(await gateway.new_key(subject="eve", scopes=("mcp:list",)))
        await reader.call("plain_echo", {"text": SECRET})
        folder = gateway.app.settings.data_dir
    records = await read_records(folder)
    assert sorted(hashes(collector)) == sorted(each["hash"] for each in records), (
        "the last records before shutdown are exported too"
    )
    assert SECRET not in str(collector.requests)
    called, refused = (
        next(each for each in collector.logs() if attributes(each).get("gatehouse.policy.decision") == decision)
        for decision in ("allow", "deny")
    )
    sent = attributes(called)
    row = next(each for each in records if each["correlation_id"] == "abc")
    assert called.body.string_value == "tools/call plain.echo"
    assert called.trace_id.hex() == row["trace_id"]
    assert (sent["event.name"], sent["gatehouse.correlation_id"]) == ("gatehouse.audit", "abc")
    assert (sent["gatehouse.audit.sequence"], sent["gatehouse.audit.writer"]) == (row["sequence"], row["writer"])
    assert (sent["gatehouse.audit.policies"], sent["gatehouse.audit.actor"]) == ("grant.call", "ci")
    assert sent["gatehouse.audit.arguments_digest"] == row["arguments_digest"]
    assert refused.severity_text == "WARNING"
    assert attributes(refused)["gatehouse.principal"] == "default/user:eve"

    # The export command sends the records again.
    config = write_settings(tmp_path, data_dir=str(folder), telemetry=otlp(collector))
    before = len(collector.logs())
    done = await asyncio.to_thread(command, tmp_path, "audit", "export", "--otlp", "--config", str(config))
    assert (done.returncode, done.stdout) == (0, f"sent {len(records)} records\n"), done.stderr
    assert hashes(collector)[before:] == [each["hash"] for each in records]


async def test_export_without_a_collector_fails_with_one_line(tmp_path: Path) -> None:
    config = write_settings(tmp_path, data_dir=str(tmp_path / "data"))
    done = await asyncio.to_thread(command, tmp_path, "audit", "export", "--otlp", "--config", str(config))
    assert done.returncode == 1
    assert done.stderr.splitlines() == ["gatehouse: no collector is configured; set telemetry.otlp.url"]


async def test_unreachable_collector_fails_no_call_and_loses_no_record(start: Any) -> None:
    unreachable = {
        "otlp": {"url": "http://127.0.0.1:9", "audit": True, "timeout": 0.2, "traces": False, "metrics": False}
    }
    async with start(backends=CORE, telemetry=unreachable) as gateway:
        for _ in range(20):
            assert "result" in await gateway.call("core_ping")
        folder = gateway.app.settings.data_dir
    assert sum(each["target"] == "core.ping" for each in await read_records(folder)) == 20
