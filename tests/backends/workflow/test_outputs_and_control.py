"""Outputs that callers read, array paths, forEach, onFailure, dry runs that are refused, and the stable cursor."""

import json
from typing import Any

from tests.backends.workflow import sandbox
from tests.backends.workflow.workflow_calls import (
    error_of,
    log_messages,
    read_log,
    run,
    step,
    structured,
    workflow,
)


async def test_status_and_logs_include_outputs_when_asked(gateway: Any) -> None:
    done = await run(gateway, step("sandbox.echo", {"value": "y"}, id="a"), step("core.ping", id="b"))
    assert "outputs" not in done
    asked = {"runId": done["runId"], "includeOutputs": True}
    outputs = structured(await gateway.call("workflow.status", asked))["outputs"]
    assert outputs[0] == {"stepId": "a", "status": "succeeded", "output": {"value": "y", "deep": {"er": "y"}}}
    assert [each["stepId"] for each in outputs] == ["a", "b"]
    logs = structured(await gateway.call("workflow.logs", {**asked, "stepId": "a"}))
    assert logs["outputs"] == outputs[:1]


async def test_large_output_is_cut_in_the_tool_and_whole_in_the_resource(gateway: Any) -> None:
    done = await run(gateway, step("sandbox.echo", {"value": "y" * 50_000}, id="a"), step("core.ping", id="b"))
    asked = {"runId": done["runId"], "includeOutputs": True}
    first, second = structured(await gateway.call("workflow.status", asked))["outputs"]
    assert (first["truncated"], "output" in first, second["output"]["ok"]) == (True, False, True)
    async with gateway.client() as client:
        record = json.loads((await client.read_resource(f"gox://runs/{done['runId']}")).contents[0].text)
    assert record["outputs"][0]["output"]["value"] == "y" * 50_000
    assert record["principal"]


async def test_conditions_and_references_index_arrays(gateway: Any) -> None:
    value = {"items": [{"id": 7}, {"id": 8}]}
    done = await run(
        gateway,
        step("sandbox.echo", {"value": value}, id="a"),
        step("sandbox.echo", {"value": "${steps.a.output.value.items[1].id}"}, id="b"),
        step(
            "sandbox.echo",
            {"value": "${steps.a.output.value.items.0.id}"},
            id="c",
            when={"stepId": "a", "path": "value.items.1.id", "equals": 8},
        ),
        step("core.ping", id="d", when={"stepId": "a", "path": "value.items[2].id", "equals": 8}),
    )
    assert done["status"] == "succeeded"
    assert [call["value"] for call in sandbox.calls[1:]] == [8, 7]
    last = await log_messages(gateway, done["runId"], stepId="d")
    assert last == ["step skipped (condition not met: step 'a' has no output at 'value.items[2].id')"]


async def test_for_each_calls_the_tool_for_every_item_in_order(gateway: Any) -> None:
    done = await run(
        gateway,
        step("sandbox.echo", {"value": [{"n": 1}, {"n": 2}, {"n": 3}]}, id="a"),
        step(
            "sandbox.echo",
            {"value": "${item.n}"},
            id="each",
            forEach={"stepId": "a", "path": "value", "parallel": 2},
        ),
        step("sandbox.echo", {"value": "${steps.each.output.items[2].value}"}, id="last"),
    )
    assert done["status"] == "succeeded"
    assert sorted(call["value"] for call in sandbox.calls[1:4]) == [1, 2, 3]
    assert sandbox.calls[4]["value"] == 3


async def test_for_each_over_too_many_items_or_no_array_fails_the_step(serving: Any) -> None:
    async with serving(max_items=2) as gateway:
        for value, code in (([1, 2, 3], "VALIDATION_ERROR"), ("text", "VALIDATION_ERROR")):
            each = {"stepId": "a", "path": "value"}
            done = await run(
                gateway,
                step("sandbox.echo", {"value": value}, id="a"),
                step("sandbox.echo", {"value": "${item}"}, forEach=each),
            )
            assert (done["status"], done["lastError"]["code"]) == ("failed", code)
    assert len(sandbox.calls) == 2


async def test_run_continues_or_jumps_after_a_failure(gateway: Any) -> None:
    fails = {"name": "f", "fails": 9, "kind": "not_found"}
    done = await run(
        gateway,
        step("sandbox.flaky", fails, id="a", onFailure="continue"),
        step("sandbox.flaky", fails, id="b", onFailure={"goto": "d"}),
        step("sandbox.echo", {"value": "passed over"}, id="c"),
        step("sandbox.echo", {"value": "reached"}, id="d"),
    )
    assert (done["status"], done["completedSteps"]) == ("succeeded", 4)
    assert [call["value"] for call in sandbox.calls if "value" in call] == ["reached"]
    asked = {"runId": done["runId"], "includeOutputs": True}
    outputs = structured(await gateway.call("workflow.status", asked))["outputs"]
    assert [each["status"] for each in outputs] == ["failed", "failed", "skipped", "succeeded"]


async def test_goto_must_name_a_later_step(gateway: Any) -> None:
    steps = workflow(step("core.ping", id="a"), step("core.ping", id="b", onFailure={"goto": "a"}))
    number, code, message = error_of(await gateway.call("workflow.run", {"definition": steps}))
    assert (number, code, message) == (-32602, "VALIDATION_ERROR", "onFailure.goto 'a' names no later step")


async def test_dry_run_with_an_unsupported_step_is_refused_before_the_run_starts(gateway: Any) -> None:
    steps = workflow(step("core.ping"), step("sandbox.echo", {"value": 1}, id="writes"))
    number, code, message = error_of(await gateway.call("workflow.run", {"definition": steps, "dryRun": True}))
    assert (number, code) == (-32602, "VALIDATION_ERROR")
    assert "'writes'" in message
    assert structured(await gateway.call("workflow.list", {}))["runs"] == []
    assert sandbox.calls == []


async def test_log_marks_a_step_whose_tool_honours_no_idempotency_key(gateway: Any) -> None:
    done = await run(gateway, step("core.ping", id="reads"), step("sandbox.echo", {"value": 1}, id="writes"))
    marked = [line["stepId"] for line in await read_log(gateway, done["runId"]) if line.get("mayRepeat")]
    assert marked == ["writes"]


async def test_pages_do_not_repeat_rows_while_new_runs_start(gateway: Any) -> None:
    old = [(await run(gateway, step("core.ping")))["runId"] for _ in range(3)]
    page = structured(await gateway.call("workflow.list", {"limit": 2}))
    for _ in range(2):
        await run(gateway, step("core.ping"))
    rest = structured(await gateway.call("workflow.list", {"limit": 2, "cursor": page["nextCursor"]}))
    assert [each["runId"] for each in (*page["runs"], *rest["runs"])] == old[::-1]
