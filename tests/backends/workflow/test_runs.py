"""Runs as a client sees them: snapshots, conditions, retries, cancellation, logs and lists."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.backends.workflow import sandbox
from tests.backends.workflow.conftest import BACKENDS
from tests.backends.workflow.workflow_calls import ended, lines, messages, refused, run, step, told, workflow
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


async def test_run_answers_at_once_with_the_snapshot_of_a_running_run(gateway: Any) -> None:
    begun = await run(gateway, step("sandbox.wait", {"name": "a"}), wait=0, correlationId="corr-1")
    assert begun["status"] == "running"
    assert begun["correlationId"] == "corr-1"
    assert set(STATUS) <= begun.keys()
    assert begun["cancelRequested"] is False
    assert "endedAt" not in begun
    sandbox.gate("a").set()
    done = await ended(gateway, begun["runId"])
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
        begun = await client.call_tool("workflow_run", {"definition": definition})
        run_id = begun.structured_content["runId"]
        done = await client.call_tool("workflow_status", {"runId": run_id, "waitMs": 20_000})
        assert done.structured_content["status"] == "succeeded"


async def test_progress_is_told_while_a_client_waits(gateway: Any) -> None:
    told_progress: list[tuple[float, float | None]] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        told_progress.append((progress, total))

    definition = workflow(step("core.ping"), step("sandbox.echo", {"value": 1}))
    async with gateway.client() as client:
        arguments = {"definition": definition, "waitMs": 20_000}
        await client.call_tool("workflow_run", arguments, progress_callback=on_progress)
    assert told_progress[0] == (0, 2)
    assert (1, 2) in told_progress


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
    skipped = await lines(gateway, done["runId"])
    wanted = "step skipped (condition not met)"
    assert [line["stepId"] for line in skipped if line["message"] == wanted] == ["unmet", "nowhere", "after"]


async def test_a_condition_sees_an_actions_output_and_not_its_envelope(gateway: Any) -> None:
    when = {"stepId": "ping", "path": "ok", "equals": True}
    await run(gateway, step("core.ping", id="ping"), step("sandbox.echo", {"value": 1}, when=when))
    assert len(sandbox.calls) == 1


async def test_outputs_of_earlier_steps_fill_arguments(gateway: Any) -> None:
    await run(
        gateway,
        step("sandbox.echo", {"value": [1, 2]}, id="first"),
        step(
            "sandbox.echo", {"value": {"all": "${steps.first.output.value}", "text": "<${steps.first.output.value}>"}}
        ),
    )
    assert sandbox.calls[1]["value"] == {"all": [1, 2], "text": "<[1, 2]>"}


async def test_a_reference_that_leads_nowhere_fails_the_run(gateway: Any) -> None:
    done = await run(gateway, step("core.ping", id="a"), step("sandbox.echo", {"value": "${steps.a.output.nope}"}))
    assert done["status"] == "failed"
    assert done["lastError"] == {"code": "VALIDATION_ERROR", "message": "${steps.a.output.nope} leads to nothing"}


async def test_outputs_that_make_arguments_too_large_fail_the_run_with_words(gateway: Any) -> None:
    long = step("sandbox.echo", {"value": "y" * 300_000}, id="a")
    done = await run(gateway, long, step("sandbox.echo", {"value": "${steps.a.output}" * 2000}))
    told = "What earlier steps gave makes these arguments larger than 1048576 bytes."
    assert done["lastError"] == {"code": "VALIDATION_ERROR", "message": told}
    assert len(sandbox.calls) == 1


async def test_the_bounds_of_a_call_hold_for_a_step_too(gateway: Any) -> None:
    """The text itself and what is put into it are each within bounds, but not both together."""
    long = step("sandbox.echo", {"value": "y" * 300_000}, id="a")
    done = await run(gateway, long, step("sandbox.echo", {"value": "z" * 600_000 + "${steps.a.output.value}" * 2}))
    assert done["lastError"] == {
        "code": "VALIDATION_ERROR",
        "message": "The arguments exceed the limit for one call.",
    }
    assert len(sandbox.calls) == 1


async def test_an_output_that_was_not_kept_is_missed_only_where_it_is_named(serving: Any) -> None:
    async with serving(max_kept_bytes=1000) as gateway:
        long, ping = step("sandbox.echo", {"value": "y" * 2000}, id="long"), step("core.ping", id="ping")
        when = {"stepId": "ping", "path": "ok", "equals": True}
        done = await run(gateway, long, ping, step("sandbox.echo", {"value": 1}, when=when))
        assert (done["status"], len(sandbox.calls)) == ("succeeded", 2)
        done = await run(gateway, long, step("sandbox.echo", {"value": "${steps.long.output.value}"}))
        told = "The output of step 'long' was not kept: a run keeps 1000 bytes of outputs."
        assert done["lastError"] == {"code": "VALIDATION_ERROR", "message": told}


async def test_a_run_that_ended_keeps_none_of_what_only_its_steps_needed(gateway: Any) -> None:
    done = await run(gateway, step("sandbox.echo", {"value": "y"}, id="a"))
    one = "WHERE run_id = '{runId}'".format_map(done)
    async with gateway.house.stores.store("default", "gox", None).transaction() as connection:
        assert (await connection.exec_driver_sql(f"SELECT COUNT(*) FROM workflow_steps {one}")).scalar_one() == 0
        assert (await connection.exec_driver_sql(f"SELECT definition FROM workflow_runs {one}")).scalar_one() == "{}"
    assert await ended(gateway, done["runId"]) == done


async def test_an_internal_failure_is_tried_again_as_often_as_asked(gateway: Any) -> None:
    retry = {"maxAttempts": 3, "backoffMs": 1}
    done = await run(gateway, step("sandbox.flaky", {"name": "f", "fails": 2}, id="f", retry=retry))
    assert done["status"] == "succeeded"
    assert await messages(gateway, done["runId"]) == [
        "workflow started",
        "step started (attempt 1/3)",
        "step attempt failed, retrying",
        "retry attempt 2/3",
        "step attempt failed, retrying",
        "retry attempt 3/3",
        "step completed",
        "workflow succeeded",
    ]
    assert [line["level"] for line in await lines(gateway, done["runId"], level="WARN")] == ["warn", "warn"]


@pytest.mark.parametrize(
    ("kind", "code"), [("invalid_input", "VALIDATION_ERROR"), ("not_found", "NOT_FOUND"), ("denied", "ACCESS_DENIED")]
)
async def test_a_refusal_is_never_tried_again(gateway: Any, kind: str, code: str) -> None:
    flaky = {"name": "f", "fails": 1, "kind": kind}
    done = await run(gateway, step("sandbox.flaky", flaky, retry={"maxAttempts": 5}), step("core.ping"))
    assert (done["status"], done["completedSteps"]) == ("failed", 0)
    assert done["lastError"]["code"] == code
    assert len(sandbox.calls) == 1
    tail = [(line["level"], line["message"]) for line in await lines(gateway, done["runId"], limit=2)]
    assert tail == [("error", "step failed"), ("error", "workflow failed")]


async def test_a_step_that_takes_too_long_fails_as_internal_and_may_be_retried(gateway: Any) -> None:
    slow = step("sandbox.wait", {"name": "never"}, timeoutMs=50, retry={"maxAttempts": 2})
    done = await run(gateway, slow)
    assert done["status"] == "failed"
    assert done["lastError"]["code"] == "INTERNAL_ERROR"
    assert len(sandbox.calls) == 2


async def test_cancel_stops_the_step_under_way(gateway: Any) -> None:
    begun = await run(gateway, step("sandbox.wait", {"name": "c"}), step("core.ping"), wait=0)
    await sandbox.gate("c:begun").wait()
    answer = told(await gateway.call("workflow.cancel", {"runId": begun["runId"]}))
    assert answer["acknowledged"] is True
    assert answer["cancelRequested"] is True
    done = await ended(gateway, begun["runId"])
    assert (done["status"], done["completedSteps"]) == ("canceled", 0)
    assert (await messages(gateway, begun["runId"]))[-2:] == ["workflow cancel requested", "workflow canceled"]


async def test_cancel_while_a_retry_is_waited_for_tries_no_more(gateway: Any) -> None:
    sandbox.calls.clear()
    failing = step("sandbox.flaky", {"name": "r", "fails": 9}, retry={"maxAttempts": 5, "backoffMs": 30_000})
    begun = await run(gateway, failing, step("core.ping"), wait=0)
    while "step attempt failed, retrying" not in await messages(gateway, begun["runId"]):
        await asyncio.sleep(0.01)
    assert told(await gateway.call("workflow.cancel", {"runId": begun["runId"]}))["acknowledged"] is True
    done = await ended(gateway, begun["runId"])
    assert (done["status"], done["completedSteps"], len(sandbox.calls)) == ("canceled", 0, 1)


async def test_a_run_whose_backend_was_replaced_goes_on_and_can_be_cancelled(serving: Any) -> None:
    async with serving() as gateway:
        await _replaced_and_cancelled(gateway)


async def _replaced_and_cancelled(gateway: Any) -> None:
    begun = await run(gateway, step("sandbox.wait", {"name": "c"}), step("core.ping"), wait=0)
    await sandbox.gate("c:begun").wait()
    settings = gateway.house.settings
    changed = settings.backends["workflow"].model_copy(update={"options": {"max_steps": 5}})
    backends = {**settings.backends, "workflow": changed}
    await gateway.house.apply(settings.model_copy(update={"backends": backends}))
    assert told(await gateway.call("workflow.cancel", {"runId": begun["runId"]}))["acknowledged"] is True
    sandbox.gate("c").set()
    while (done := await ended(gateway, begun["runId"]))["status"] == "running":
        await asyncio.sleep(0.02)
    assert done["status"] == "canceled"


async def test_cancelling_what_has_ended_is_not_acknowledged_and_changes_nothing(gateway: Any) -> None:
    done = await run(gateway, step("core.ping"))
    answer = told(await gateway.call("workflow.cancel", {"runId": done["runId"]}))
    assert answer == {**done, "acknowledged": False}


@pytest.mark.parametrize("tool", ["status", "cancel", "logs"])
async def test_an_unknown_run_is_not_found(gateway: Any, tool: str) -> None:
    answer = await gateway.call(f"workflow.{tool}", {"runId": "wf-1-1"})
    assert refused(answer) == (404, "NOT_FOUND", "workflow run 'wf-1-1' not found")


async def test_lists_are_newest_first_in_pages_and_by_status(gateway: Any) -> None:
    runs = [(await run(gateway, step("core.ping")))["runId"] for _ in range(3)]
    failed = (await run(gateway, step("sandbox.flaky", {"name": "x", "fails": 1})))["runId"]
    first = told(await gateway.call("workflow.list", {"limit": 3}))
    assert [each["runId"] for each in first["runs"]] == [failed, runs[2], runs[1]]
    rest = told(await gateway.call("workflow.list", {"limit": 1000, "cursor": first["nextCursor"]}))
    assert rest["runs"][0]["runId"] == runs[0]
    assert "nextCursor" not in rest
    only = told(await gateway.call("workflow.list", {"status": "FAILED", "limit": 1}))
    assert only["runs"] == [await ended(gateway, failed)]


async def test_logs_by_step_and_time(gateway: Any) -> None:
    done = await run(gateway, step("core.ping", id="a"), step("core.ping", id="b"))
    assert await messages(gateway, done["runId"], stepId="b") == ["step started (attempt 1/1)", "step completed"]
    last = (await lines(gateway, done["runId"]))[-1]
    assert last.keys() == {"timestamp", "level", "message"}
    assert await lines(gateway, done["runId"], since=last["timestamp"]) == [last]
    assert await lines(gateway, done["runId"], since="2999-01-01T00:00:00+02:00") == []


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
async def test_bad_arguments_are_named(gateway: Any, tool: str, arguments: dict[str, Any], path: str) -> None:
    if tool == "logs":
        arguments = {"runId": (await run(gateway, step("core.ping")))["runId"], **arguments}
    error = (await gateway.call(f"workflow.{tool}", arguments))["error"]
    assert (error["code"], error["data"]["code"], error["data"]["validation_path"]) == (
        -32602,
        "VALIDATION_ERROR",
        path,
    )


async def test_more_runs_at_once_than_allowed_are_refused(serving: Any) -> None:
    async with serving(max_concurrent_runs=2) as gateway:
        held = [await run(gateway, step("sandbox.wait", {"name": "g"}), wait=0) for _ in range(2)]
        answer = await gateway.call("workflow.run", {"definition": workflow(step("core.ping"))})
        assert refused(answer) == (429, "ACCESS_DENIED", "workflow concurrency limit reached (max 2)")
        async with gateway.client("legacy") as client:
            with pytest.raises(Exception, match="concurrency") as caught:
                await client.call_tool("workflow_run", {"definition": workflow(step("core.ping"))})
            assert caught.value.error.code == -32043  # type: ignore[attr-defined]
        sandbox.gate("g").set()
        for each in held:
            assert (await ended(gateway, each["runId"]))["status"] == "succeeded"


async def test_an_action_that_a_backend_of_ours_lacks_is_refused_before_anything_runs(gateway: Any) -> None:
    before = await gateway.call("workflow.list", {"limit": 1})
    answer = await gateway.call("workflow.run", {"definition": workflow(step("core.ping"), step("core.pong"))})
    assert refused(answer) == (404, "NOT_FOUND", "action 'core.pong' is not registered")
    assert told(await gateway.call("workflow.list", {"limit": 1})) == told(before)


async def test_a_tool_of_nobody_is_refused_before_anything_runs(gateway: Any) -> None:
    answer = await gateway.call("workflow.run", {"definition": workflow(step("core.ping"), step("nobody.home"))})
    assert refused(answer)[:2] == (404, "NOT_FOUND")


async def test_every_step_walks_the_path_with_the_rights_of_whoever_began_it(gateway: Any) -> None:
    bare = gateway.as_(await gateway.new_key(scopes=("mcp:list", "mcp:call")))
    answer = await bare.call("workflow.run", {"definition": workflow(step("core.ping"))})
    assert refused(answer)[:2] == (403, "ACCESS_DENIED")


async def test_a_run_ends_when_its_key_is_revoked(gateway: Any) -> None:
    key, info = await gateway.house.keys.create("default", "carol")
    begun = await run(gateway.as_(key), step("sandbox.wait", {"name": "r"}), step("core.ping"), wait=0)
    await sandbox.gate("r:begun").wait()
    await gateway.house.keys.revoke(info.id)
    sandbox.gate("r").set()
    done = await ended(gateway, begun["runId"])
    assert (done["status"], done["completedSteps"]) == ("failed", 1)
    assert done["lastError"]["code"] == "ACCESS_DENIED"


async def test_two_tenants_never_see_each_others_runs(gateway: Any) -> None:
    other = gateway.as_(await gateway.new_key("other"))
    done = await run(gateway, step("core.ping"))
    assert told(await other.call("workflow.list", {})) == {"runs": []}
    for tool in ("status", "cancel", "logs"):
        assert refused(await other.call(f"workflow.{tool}", {"runId": done["runId"]}))[1] == "NOT_FOUND"
    read = await other.post("resources/read", {"uri": f"gox://runs/{done['runId']}"})
    assert read.json()["error"]["code"] == -32602


async def test_many_runs_at_once_all_end(gateway: Any) -> None:
    ends = await asyncio.gather(
        *(run(gateway, step("core.ping"), step("sandbox.echo", {"value": n})) for n in range(8))
    )
    assert {end["status"] for end in ends} == {"succeeded"}
    assert sorted(call["value"] for call in sandbox.calls) == list(range(8))


async def test_the_same_idempotency_key_begins_one_run(gateway: Any) -> None:
    both = [await run(gateway, step("sandbox.echo", {"value": 1}), meta={"idempotencyKey": "k"}) for _ in range(2)]
    assert both[0] == both[1]
    assert len(sandbox.calls) == 1


async def test_only_the_latest_log_lines_are_kept(serving: Any) -> None:
    async with serving(max_logs_per_run=2) as gateway:
        done = await run(gateway, step("core.ping"), step("core.ping"))
        assert await messages(gateway, done["runId"]) == ["step completed", "workflow succeeded"]


async def test_of_a_run_past_retention_the_record_is_left(serving: Any) -> None:
    async with serving(retention_max_runs=1) as gateway:
        first = await run(gateway, step("core.ping"), step("core.ping"))
        await run(gateway, step("core.ping"))
        third = await run(gateway, step("core.ping"))  # each start forgets what is too much by then
        assert await ended(gateway, first["runId"]) == first
        assert await messages(gateway, first["runId"]) == ["workflow started", "workflow succeeded"]
        listed = told(await gateway.call("workflow.list", {}))["runs"]
        assert (len(listed), listed[0], listed[-1]) == (3, third, first)
