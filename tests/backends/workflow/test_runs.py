"""Workflow runs from the client side: snapshots, conditions, retries, cancellation, logs and lists."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.backends.workflow import sandbox
from tests.backends.workflow.conftest import BACKENDS
from tests.backends.workflow.workflow_calls import (
    error_of,
    log_messages,
    read_log,
    run,
    step,
    structured,
    wait_for_end,
    workflow,
)
from tests.conftest import run_gateway

# One gateway serves most of the file, so all of it runs on one event loop.
pytestmark = pytest.mark.asyncio(loop_scope="module")

STATUS = ("runId", "workflowId", "correlationId", "status", "startedAt", "totalSteps", "completedSteps")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Any]:
    tenants: dict[str, Any] = {"default": {}, "other": {}}
    folder = tmp_path_factory.mktemp("runs")
    async with run_gateway(folder, backends=BACKENDS, tenants=tenants, limits={"calls": "100000/minute"}) as running:
        yield running


async def test_run_returns_immediately_with_the_snapshot_of_a_running_run(gateway: Any) -> None:
    started = await run(gateway, step("sandbox.wait", {"name": "a"}), wait=0, correlationId="corr-1")
    assert started["status"] == "running"
    assert started["correlationId"] == "corr-1"
    assert set(STATUS) <= started.keys()
    assert started["cancelRequested"] is False
    assert "endedAt" not in started
    sandbox.gate("a").set()
    done = await wait_for_end(gateway, started["runId"])
    assert done["status"] == "succeeded"
    assert done["endedAt"] >= done["startedAt"]
    assert (done["totalSteps"], done["completedSteps"]) == (1, 1)


async def test_the_sdk_client_runs_a_workflow_in_either_era(gateway: Any, era: str) -> None:
    async with gateway.client(era) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert {name for name in tools if name.startswith("workflow")} == {
            f"workflow_{name}" for name in ("run", "status", "cancel", "list", "logs")
        }
        assert all(tools[f"workflow_{name}"].meta["gox:type"] == "workflow" for name in ("run", "logs"))
        definition = workflow(step("core.ping"), step("project.workspace_stats"))
        started = await client.call_tool("workflow_run", {"definition": definition})
        run_id = started.structured_content["runId"]
        done = await client.call_tool("workflow_status", {"runId": run_id, "waitMs": 20_000})
        assert done.structured_content["status"] == "succeeded"


async def test_progress_is_reported_while_a_client_waits(gateway: Any) -> None:
    reported: list[tuple[float, float | None]] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        reported.append((progress, total))

    definition = workflow(step("core.ping"), step("sandbox.echo", {"value": 1}))
    async with gateway.client() as client:
        arguments = {"definition": definition, "waitMs": 20_000}
        await client.call_tool("workflow_run", arguments, progress_callback=on_progress)
    assert reported[0] == (0, 2)
    assert (1, 2) in reported


async def test_a_step_runs_only_when_its_condition_is_met(gateway: Any) -> None:
    done = await run(
        gateway,
        step("sandbox.echo", {"value": {"n": 1}}, id="first"),
        step("sandbox.echo", {"value": "yes"}, id="met", when={"stepId": "first", "path": "deep.er.n", "equals": 1}),
        step("sandbox.echo", {"value": "no"}, id="unmet", when={"stepId": "first", "path": "value.n", "equals": 2}),
        step("sandbox.echo", {"value": "no"}, id="nowhere", when={"stepId": "first", "path": "x.y", "equals": None}),
        step("sandbox.echo", {"value": "no"}, id="after", when={"stepId": "unmet", "path": "value", "equals": "no"}),
    )
    assert (done["status"], done["completedSteps"]) == ("succeeded", 5)
    assert [call["value"] for call in sandbox.calls] == [{"n": 1}, "yes"]
    skipped = await read_log(gateway, done["runId"])
    wanted = "step skipped (condition not met"
    assert [line["stepId"] for line in skipped if line["message"].startswith(wanted)] == ["unmet", "nowhere", "after"]


async def test_condition_reads_the_output_of_an_action_without_its_envelope(gateway: Any) -> None:
    when = {"stepId": "ping", "path": "ok", "equals": True}
    await run(gateway, step("core.ping", id="ping"), step("sandbox.echo", {"value": 1}, when=when))
    assert len(sandbox.calls) == 1


async def test_references_insert_outputs_of_earlier_steps(gateway: Any) -> None:
    await run(
        gateway,
        step("sandbox.echo", {"value": [1, 2]}, id="first"),
        step(
            "sandbox.echo", {"value": {"all": "${steps.first.output.value}", "text": "<${steps.first.output.value}>"}}
        ),
    )
    assert sandbox.calls[1]["value"] == {"all": [1, 2], "text": "<[1, 2]>"}


async def test_unresolvable_reference_fails_the_run(gateway: Any) -> None:
    done = await run(gateway, step("core.ping", id="a"), step("sandbox.echo", {"value": "${steps.a.output.nope}"}))
    assert done["status"] == "failed"
    assert done["lastError"] == {
        "code": "VALIDATION_ERROR",
        "message": "${steps.a.output.nope} does not resolve to a value",
    }


async def test_outputs_that_make_arguments_too_large_fail_the_run(gateway: Any) -> None:
    long = step("sandbox.echo", {"value": "y" * 300_000}, id="a")
    done = await run(gateway, long, step("sandbox.echo", {"value": "${steps.a.output}" * 2000}))
    message = "The outputs of earlier steps make these arguments larger than 1048576 bytes."
    assert done["lastError"] == {"code": "VALIDATION_ERROR", "message": message}
    assert len(sandbox.calls) == 1


async def test_argument_size_limit_of_calls_applies_to_steps(gateway: Any) -> None:
    """The literal text and the inserted output are each within the limit, but their sum is not."""
    long = step("sandbox.echo", {"value": "y" * 300_000}, id="a")
    done = await run(gateway, long, step("sandbox.echo", {"value": "z" * 600_000 + "${steps.a.output.value}" * 2}))
    assert done["lastError"] == {
        "code": "VALIDATION_ERROR",
        "message": "The arguments exceed the limit for one call.",
    }
    assert len(sandbox.calls) == 1


async def test_output_that_was_not_stored_fails_only_a_step_that_references_it(serving: Any) -> None:
    async with serving(max_kept_bytes=1000) as gateway:
        long, ping = step("sandbox.echo", {"value": "y" * 2000}, id="long"), step("core.ping", id="ping")
        when = {"stepId": "ping", "path": "ok", "equals": True}
        done = await run(gateway, long, ping, step("sandbox.echo", {"value": 1}, when=when))
        assert (done["status"], len(sandbox.calls)) == ("succeeded", 2)
        done = await run(gateway, long, step("sandbox.echo", {"value": "${steps.long.output.value}"}))
        message = "The output of step 'long' was not stored: the limit is 1000 bytes per run."
        assert done["lastError"] == {"code": "VALIDATION_ERROR", "message": message}


async def test_definition_is_deleted_when_the_run_ends(gateway: Any) -> None:
    done = await run(gateway, step("sandbox.echo", {"value": "y"}, id="a"))
    one = "WHERE run_id = '{runId}'".format_map(done)
    async with gateway.app.stores.store("default", "gox", None).transaction() as connection:
        assert (await connection.exec_driver_sql(f"SELECT definition FROM workflow_runs {one}")).scalar_one() == "{}"
    assert await wait_for_end(gateway, done["runId"]) == done


async def test_internal_failure_is_retried_up_to_max_attempts(gateway: Any) -> None:
    retry = {"maxAttempts": 3, "backoffMs": 1}
    done = await run(gateway, step("sandbox.flaky", {"name": "f", "fails": 2}, id="f", retry=retry))
    assert done["status"] == "succeeded"
    assert await log_messages(gateway, done["runId"]) == [
        "workflow started",
        "step started (attempt 1/3)",
        "step attempt failed, retrying",
        "retry attempt 2/3",
        "step attempt failed, retrying",
        "retry attempt 3/3",
        "step completed",
        "workflow succeeded",
    ]
    assert [line["level"] for line in await read_log(gateway, done["runId"], level="WARN")] == ["warn", "warn"]


@pytest.mark.parametrize(
    ("kind", "code"), [("invalid_input", "VALIDATION_ERROR"), ("not_found", "NOT_FOUND"), ("denied", "ACCESS_DENIED")]
)
async def test_rejected_step_is_never_retried(gateway: Any, kind: str, code: str) -> None:
    flaky = {"name": "f", "fails": 1, "kind": kind}
    done = await run(gateway, step("sandbox.flaky", flaky, retry={"maxAttempts": 5}), step("core.ping"))
    assert (done["status"], done["completedSteps"]) == ("failed", 0)
    assert done["lastError"]["code"] == code
    assert len(sandbox.calls) == 1
    tail = [(line["level"], line["message"]) for line in await read_log(gateway, done["runId"], limit=2)]
    assert tail == [("error", "step failed"), ("error", "workflow failed")]


async def test_step_timeout_is_an_internal_error_and_is_retried(gateway: Any) -> None:
    slow = step("sandbox.wait", {"name": "never"}, timeoutMs=50, retry={"maxAttempts": 2})
    done = await run(gateway, slow)
    assert done["status"] == "failed"
    assert done["lastError"]["code"] == "INTERNAL_ERROR"
    assert len(sandbox.calls) == 2


async def test_cancel_stops_the_running_step(gateway: Any) -> None:
    started = await run(gateway, step("sandbox.wait", {"name": "c"}), step("core.ping"), wait=0)
    await sandbox.gate("c:begun").wait()
    answer = structured(await gateway.call("workflow.cancel", {"runId": started["runId"]}))
    assert answer["acknowledged"] is True
    assert answer["cancelRequested"] is True
    done = await wait_for_end(gateway, started["runId"])
    assert (done["status"], done["completedSteps"]) == ("canceled", 0)
    assert (await log_messages(gateway, started["runId"]))[-2:] == ["workflow cancel requested", "workflow canceled"]


async def test_cancel_during_backoff_prevents_the_retry(gateway: Any) -> None:
    sandbox.calls.clear()
    failing = step("sandbox.flaky", {"name": "r", "fails": 9}, retry={"maxAttempts": 5, "backoffMs": 30_000})
    started = await run(gateway, failing, step("core.ping"), wait=0)
    while "step attempt failed, retrying" not in await log_messages(gateway, started["runId"]):
        await asyncio.sleep(0.01)
    assert structured(await gateway.call("workflow.cancel", {"runId": started["runId"]}))["acknowledged"] is True
    done = await wait_for_end(gateway, started["runId"])
    assert (done["status"], done["completedSteps"], len(sandbox.calls)) == ("canceled", 0, 1)


async def test_run_continues_and_can_be_cancelled_after_its_backend_was_reloaded(serving: Any) -> None:
    async with serving() as gateway:
        await _reload_and_cancel(gateway)


async def _reload_and_cancel(gateway: Any) -> None:
    started = await run(gateway, step("sandbox.wait", {"name": "c"}), step("core.ping"), wait=0)
    await sandbox.gate("c:begun").wait()
    settings = gateway.app.settings
    changed = settings.backends["workflow"].model_copy(update={"options": {"max_steps": 5}})
    backends = {**settings.backends, "workflow": changed}
    await gateway.app.apply(settings.model_copy(update={"backends": backends}))
    assert structured(await gateway.call("workflow.cancel", {"runId": started["runId"]}))["acknowledged"] is True
    sandbox.gate("c").set()
    while (done := await wait_for_end(gateway, started["runId"]))["status"] == "running":
        await asyncio.sleep(0.02)
    assert done["status"] == "canceled"


async def test_cancel_of_a_finished_run_is_not_acknowledged_and_changes_nothing(gateway: Any) -> None:
    done = await run(gateway, step("core.ping"))
    answer = structured(await gateway.call("workflow.cancel", {"runId": done["runId"]}))
    assert answer == {**done, "acknowledged": False}


@pytest.mark.parametrize("tool", ["status", "cancel", "logs"])
async def test_an_unknown_run_is_not_found(gateway: Any, tool: str) -> None:
    answer = await gateway.call(f"workflow.{tool}", {"runId": "wf-1-1"})
    assert error_of(answer) == (404, "NOT_FOUND", "workflow run 'wf-1-1' not found")


async def test_lists_are_newest_first_in_pages_and_by_status(gateway: Any) -> None:
    runs = [(await run(gateway, step("core.ping")))["runId"] for _ in range(3)]
    failed = (await run(gateway, step("sandbox.flaky", {"name": "x", "fails": 1})))["runId"]
    first = structured(await gateway.call("workflow.list", {"limit": 3}))
    assert [each["runId"] for each in first["runs"]] == [failed, runs[2], runs[1]]
    rest = structured(await gateway.call("workflow.list", {"limit": 1000, "cursor": first["nextCursor"]}))
    assert rest["runs"][0]["runId"] == runs[0]
    assert "nextCursor" not in rest
    only = structured(await gateway.call("workflow.list", {"status": "FAILED", "limit": 1}))
    assert only["runs"] == [await wait_for_end(gateway, failed)]


async def test_logs_by_step_and_time(gateway: Any) -> None:
    done = await run(gateway, step("core.ping", id="a"), step("core.ping", id="b"))
    assert await log_messages(gateway, done["runId"], stepId="b") == ["step started (attempt 1/1)", "step completed"]
    last = (await read_log(gateway, done["runId"]))[-1]
    assert last.keys() == {"timestamp", "level", "message"}
    assert await read_log(gateway, done["runId"], since=last["timestamp"]) == [last]
    assert await read_log(gateway, done["runId"], since="2999-01-01T00:00:00+02:00") == []


@pytest.mark.parametrize(
    ("tool", "arguments", "path"),
    [
        ("list", {"cursor": "x"}, "input.cursor"),
        ("list", {"cursor": "-1"}, "input.cursor"),
        ("list", {"limit": 0}, "input.limit"),
        ("logs", {"since": "yesterday"}, "input.since"),
        ("logs", {"since": "2026-13-01T00:00:00Z"}, "input.since"),
    ],
)
async def test_invalid_arguments_are_rejected_with_their_path(
    gateway: Any, tool: str, arguments: dict[str, Any], path: str
) -> None:
    if tool == "logs":
        arguments = {"runId": (await run(gateway, step("core.ping")))["runId"], **arguments}
    error = (await gateway.call(f"workflow.{tool}", arguments))["error"]
    assert (error["code"], error["data"]["code"], error["data"]["validation_path"]) == (
        -32602,
        "VALIDATION_ERROR",
        path,
    )


async def test_run_over_the_concurrency_limit_is_rejected(serving: Any) -> None:
    async with serving(max_concurrent_runs=2) as gateway:
        held = [await run(gateway, step("sandbox.wait", {"name": "g"}), wait=0) for _ in range(2)]
        answer = await gateway.call("workflow.run", {"definition": workflow(step("core.ping"))})
        assert error_of(answer) == (429, "ACCESS_DENIED", "workflow concurrency limit reached (max 2)")
        async with gateway.client("legacy") as client:
            with pytest.raises(Exception, match="concurrency") as caught:
                await client.call_tool("workflow_run", {"definition": workflow(step("core.ping"))})
            assert caught.value.error.code == -32043  # type: ignore[attr-defined]
        sandbox.gate("g").set()
        for each in held:
            assert (await wait_for_end(gateway, each["runId"]))["status"] == "succeeded"


async def test_unknown_action_of_a_known_backend_is_rejected_before_any_step_runs(gateway: Any) -> None:
    before = await gateway.call("workflow.list", {"limit": 1})
    answer = await gateway.call("workflow.run", {"definition": workflow(step("core.ping"), step("core.pong"))})
    assert error_of(answer) == (404, "NOT_FOUND", "action 'core.pong' is not registered")
    assert structured(await gateway.call("workflow.list", {"limit": 1})) == structured(before)


async def test_tool_of_an_unknown_backend_is_rejected_before_any_step_runs(gateway: Any) -> None:
    answer = await gateway.call("workflow.run", {"definition": workflow(step("core.ping"), step("unknown.tool"))})
    assert error_of(answer)[:2] == (404, "NOT_FOUND")


async def test_workflow_run_requires_the_write_scope(gateway: Any) -> None:
    bare = gateway.as_(await gateway.new_key(scopes=("mcp:list", "mcp:call")))
    answer = await bare.call("workflow.run", {"definition": workflow(step("core.ping"))})
    assert error_of(answer)[:2] == (403, "ACCESS_DENIED")


async def test_a_run_ends_when_its_key_is_revoked(gateway: Any) -> None:
    key, info = await gateway.app.keys.create("default", "carol")
    started = await run(gateway.as_(key), step("sandbox.wait", {"name": "r"}), step("core.ping"), wait=0)
    await sandbox.gate("r:begun").wait()
    await gateway.app.keys.revoke(info.id)
    sandbox.gate("r").set()
    done = await wait_for_end(gateway, started["runId"])
    assert (done["status"], done["completedSteps"]) == ("failed", 1)
    assert done["lastError"]["code"] == "ACCESS_DENIED"


async def test_tenants_cannot_see_each_others_runs(gateway: Any) -> None:
    other = gateway.as_(await gateway.new_key("other"))
    done = await run(gateway, step("core.ping"))
    assert structured(await other.call("workflow.list", {})) == {"runs": []}
    for tool in ("status", "cancel", "logs"):
        assert error_of(await other.call(f"workflow.{tool}", {"runId": done["runId"]}))[1] == "NOT_FOUND"
    read = await other.post("resources/read", {"uri": f"gox://runs/{done['runId']}"})
    assert read.json()["error"]["code"] == -32602


async def test_concurrent_runs_all_finish(gateway: Any) -> None:
    ends = await asyncio.gather(
        *(run(gateway, step("core.ping"), step("sandbox.echo", {"value": n})) for n in range(8))
    )
    assert {end["status"] for end in ends} == {"succeeded"}
    assert sorted(call["value"] for call in sandbox.calls) == list(range(8))


async def test_repeated_idempotency_key_starts_one_run(gateway: Any) -> None:
    both = [await run(gateway, step("sandbox.echo", {"value": 1}), meta={"idempotencyKey": "k"}) for _ in range(2)]
    assert both[0] == both[1]
    assert len(sandbox.calls) == 1


async def test_only_the_latest_log_lines_are_kept(serving: Any) -> None:
    async with serving(max_logs_per_run=2) as gateway:
        done = await run(gateway, step("core.ping"), step("core.ping"))
        assert await log_messages(gateway, done["runId"]) == ["step completed", "workflow succeeded"]


async def test_pruned_run_remains_as_a_run_log_record(serving: Any) -> None:
    async with serving(retention_max_runs=1) as gateway:
        first = await run(gateway, step("core.ping"), step("core.ping"))
        await run(gateway, step("core.ping"))
        third = await run(gateway, step("core.ping"))  # each start prunes the runs over the limit
        assert await wait_for_end(gateway, first["runId"]) == first
        assert await log_messages(gateway, first["runId"]) == ["workflow started", "workflow succeeded"]
        listed = structured(await gateway.call("workflow.list", {}))["runs"]
        assert (len(listed), listed[0], listed[-1]) == (3, third, first)
