"""Result envelopes, request metadata, and the run log with its resources."""

import asyncio
import json
import re
from typing import Any

import pytest

from tests.backends.gox import sandbox

Json = dict[str, Any]


async def _read(gateway: Any, uri: str) -> Json:
    return (await gateway.post("resources/read", {"uri": uri})).json()


async def _runs(gateway: Any) -> list[Json]:
    answer = await _read(gateway, "gox://runs")
    return json.loads(answer["result"]["contents"][0]["text"])["runs"]


async def test_envelope_is_returned_as_structured_content_and_as_text(gateway: Any) -> None:
    result = (await gateway.call("sandbox_write", {}))["result"]
    envelope = result["structuredContent"]
    assert envelope["output"] == {"count": 1, "diffSummary": "wrote 1"}
    assert envelope["diff"] == {"summary": "wrote 1", "entries": []}
    assert json.loads(result["content"][0]["text"]) == envelope
    assert re.fullmatch(r"[0-9a-f]{8}-\d{8}T\d{6}\.\d{9}Z-[0-9a-z]+", envelope["runId"])


async def test_a_read_has_no_diff(gateway: Any) -> None:
    assert (await gateway.call("core_ping", {}))["result"]["structuredContent"]["diff"] is None


@pytest.mark.parametrize(
    ("value", "parsed"),
    [
        (True, True),
        ("true", True),
        ("1", True),
        ("T", True),
        ("0", False),
        ("false", False),
    ],
)
async def test_flags_accept_the_boolean_strings_of_go(gateway: Any, value: Any, parsed: bool) -> None:
    await gateway.call(
        "sandbox_write", {}, {"dryRun": value, "approved": value, "actor": "ann", "correlationId": "c-1"}
    )
    request = sandbox.written[0]
    assert (request.dry_run, request.approved) == (parsed, parsed)
    assert (request.actor, request.correlation_id) == ("ann", "c-1")


@pytest.mark.parametrize("value", ["yes", "on", " true", "tRUE", "", 1, 0, None, [True], {}])
@pytest.mark.parametrize("flag", ["dryRun", "approved"])
async def test_any_other_value_of_a_flag_is_rejected_and_nothing_is_written(
    gateway: Any, flag: str, value: Any
) -> None:
    # They once counted as absent: `dryRun: "yes"` made the change.
    error = (await gateway.call("sandbox_write", {}, {flag: value}))["error"]
    assert (error["code"], error["data"]["stage"]) == (-32602, "validate")
    assert error["data"]["validation_path"] == f"_meta.{flag}"
    assert sandbox.written == []


async def test_every_started_action_has_a_record_and_records_are_newest_first(gateway: Any) -> None:
    written = await gateway.call("sandbox_write", {}, {"correlationId": "c-2"})
    await gateway.call("sandbox_fail", {"kind": "not_found"})
    failed, succeeded = await _runs(gateway)
    assert succeeded.keys() >= {"runId", "startedAt", "endedAt"}
    assert succeeded["runId"] == written["result"]["structuredContent"]["runId"]
    wanted = {"correlationId": "c-2", "type": "action", "name": "sandbox.write", "status": "succeeded"}
    assert {**wanted, "diffSummary": "wrote 1"}.items() <= succeeded.items()
    wanted = {
        "status": "failed",
        "errorCode": "NOT_FOUND",
        "errorMessage": "requested fault: not_found",
        "diffSummary": "",
    }
    assert wanted.items() <= failed.items()
    one = await _read(gateway, f"gox://runs/{failed['runId']}")
    assert json.loads(one["result"]["contents"][0]["text"]) == failed
    assert one["result"]["contents"][0]["mimeType"] == "application/json"


async def test_call_rejected_before_it_starts_has_no_record(gateway: Any) -> None:
    await gateway.call("sandbox_fail", {"kind": 5})
    await gateway.call("sandbox_nothing", {})
    reader = gateway.as_(await gateway.new_key(scopes=("mcp:list", "mcp:call")))
    await reader.call("sandbox_write", {})
    assert await _runs(gateway) == []


async def test_unexpected_exception_marks_the_record_as_failed(gateway: Any) -> None:
    await gateway.call("sandbox_fail", {"kind": "defect"})
    (run,) = await _runs(gateway)
    assert (run["status"], run["errorCode"]) == ("failed", "INTERNAL_ERROR")


async def test_cancelled_call_marks_the_record_as_canceled(gateway: Any) -> None:
    calling = asyncio.create_task(gateway.call("sandbox_write", {"gate": "g"}))
    await sandbox.gate("g:begun").wait()
    calling.cancel()
    while (run := (await _runs(gateway))[0])["status"] == "running":
        await asyncio.sleep(0.01)
    assert run["status"] == "canceled"


async def test_run_interrupted_by_a_process_kill_is_marked_as_failed(serving: Any) -> None:
    async with serving() as gateway:
        await gateway.call("sandbox_write", {})
        store = gateway.app.stores.store("default", "gox", None)
        async with store.transaction() as connection:  # the state after a kill during the call
            await connection.exec_driver_sql("UPDATE runs SET status = 'running', ended_at = NULL")
    async with serving() as gateway:
        (run,) = await _runs(gateway)
        assert (run["status"], run["errorMessage"]) == ("failed", "The gateway stopped while this ran.")


async def test_old_records_are_deleted(serving: Any) -> None:
    async with serving() as gateway:
        await gateway.call("sandbox_write", {})
        store = gateway.app.stores.store("default", "gox", None)
        async with store.transaction() as connection:
            await connection.exec_driver_sql("UPDATE runs SET ended_at = '2020-01-01T00:00:00.000000000Z'")
    async with serving() as gateway:
        await gateway.call("core_ping", {})
        assert [run["name"] for run in await _runs(gateway)] == ["core.ping"]


async def test_status_counts_the_actions_of_every_gox_backend(gateway: Any) -> None:
    answer = await _read(gateway, "gox://status")
    status = json.loads(answer["result"]["contents"][0]["text"])
    assert status.keys() == {"version", "actionsCount", "serverTime"}
    assert status["actionsCount"] == 4


async def test_resources_are_listed_under_their_own_uris(gateway: Any, era: str) -> None:
    async with gateway.client(era) as client:
        listed = {str(each.uri): each.name for each in (await client.list_resources()).resources}
        assert {"gox://status": "server_status", "gox://runs": "runlog_list"}.items() <= listed.items()
        templates = (await client.list_resource_templates()).resource_templates
        assert ("gox://runs/{runId}", "runlog_item") in [(each.uri_template, each.name) for each in templates]


@pytest.mark.parametrize("uri", ["gox://runs/none", "gox://else"])
async def test_an_unknown_resource_is_not_found(gateway: Any, uri: str) -> None:
    answer = await _read(gateway, uri)
    assert answer["error"]["code"] == -32602
    assert answer["error"]["data"]["uri"] == uri


async def test_each_tenant_has_its_own_run_log(gateway: Any) -> None:
    other = gateway.as_(await gateway.new_key("other"))
    run_id = (await gateway.call("core_ping", {}))["result"]["structuredContent"]["runId"]
    assert await _runs(other) == []
    assert "error" in await _read(other, f"gox://runs/{run_id}")
