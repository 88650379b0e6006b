"""A row for every binding sentence of the contract, each checked in both eras against what a real client was told."""

import asyncio
import base64
import hashlib
import re
from collections.abc import Callable
from typing import Any

import pytest

from backends.launch import json_schemas
from tests.backends.launch.contract_flow import NAMES, RUN_SCOPED, Json, Told, journey
from tests.conftest import HANDSHAKE, MODERN
from tests.peers.collector import attributes

Holds = Callable[[Told], Any]
ROWS: list[tuple[str, Holds]] = []
INTERNAL, SERVER = 1, 2


def row(sentence: str) -> Callable[[Holds], Holds]:
    def add(holds: Holds) -> Holds:
        ROWS.append((sentence, holds))
        return holds

    return add


@pytest.fixture(scope="module", params=[(MODERN, "http"), (HANDSHAKE, "grpc")], ids=[MODERN, HANDSHAKE])
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Told:
    return asyncio.run(journey(tmp_path_factory.mktemp("contract"), *request.param))


def _code(answer: Json) -> str:
    return answer["error"]["code"]


def _types(told: Told) -> list[str]:
    return [event["type"] for event in told["telemetry"]["events"]]


def _work_items_are_told(told: Told) -> bool:
    events = told["telemetry"]["events"]
    started = {event["payload"]["work_item_id"] for event in events if event["type"] == "WORK_ITEM_STARTED"}
    ended = {
        event["payload"]["work_item_id"]
        for event in events
        if event["type"] in ("WORK_ITEM_FINISHED", "WORK_ITEM_FAILED")
    }
    return bool(started) and started == ended


def _traced(told: Told) -> bool:
    return all(
        event["run_id"] == told["start"]["run_id"] and event["trace_id"] and event["span_id"]
        for event in told["telemetry"]["events"]
    )


@row("the tools have exactly the contract's names")
def _(told: Told) -> Any:
    return set(told.tools) == NAMES


@row("requests are closed objects")
def _(told: Told) -> Any:
    return all(tool.input_schema["additionalProperties"] is False for tool in told.tools.values())


@row("every tool states what it answers")
def _(told: Told) -> Any:
    return all(tool.output_schema["type"] == "object" for tool in told.tools.values())


@row("every response has ok, as isError says")
def _(told: Told) -> Any:
    return not told.wrong


@row("a success of a run-scoped tool has run_id")
def _(told: Told) -> Any:
    return all(told[word]["run_id"] for word in RUN_SCOPED)


@row("a failure has the standard error shape")
def _(told: Told) -> Any:
    return {"code", "message", "retryable", "details"} <= told["bad_url"]["error"].keys()


@row("a failure that names a run says which")
def _(told: Told) -> Any:
    return told["early_fix"]["run_id"] == told["start"]["run_id"]


@row("every worker execution tells its start and its end")
def _(told: Told) -> Any:
    return _work_items_are_told(told)


@row("every event has run_id, trace and span")
def _(told: Told) -> Any:
    return _traced(told)


@row("every work item is a span below the call that had it done, by the same ids as in the journal")
def _(told: Told) -> Any:
    spans = {span.span_id.hex(): span for span in told.spans}
    started = [event for event in told["telemetry"]["events"] if event["type"] == "WORK_ITEM_STARTED"]
    causes = set[str]()
    for event in started:
        span = spans[event["span_id"]]
        cause = spans[event["parent_span_id"]]
        about = attributes(span)
        worker, attempt, scope = event["payload"]["work_item_id"].split(":", 3)[1:]
        assert span.name == f"launch {worker}"
        assert (span.kind, cause.kind) == (INTERNAL, SERVER)
        assert span.trace_id == cause.trace_id == bytes.fromhex(event["trace_id"])
        assert span.parent_span_id == cause.span_id
        assert (about["launch.attempt"], about["launch.scope"]) == (int(attempt), scope)
        assert about["launch.run_id"] == event["run_id"]
        assert about["gatehouse.correlation_id"] == attributes(cause)["gatehouse.correlation_id"]
        assert about["gatehouse.tenant"] == "default"
        assert span.start_time_unix_nano < span.end_time_unix_nano
        causes.add(cause.name)
    wanted = {f"tools/call launch.{tool}" for tool in ("start_run", "validate", "fix_next", "open_pr")}
    return causes >= wanted


@row("what goes on after the call has been answered stays below it, in the same trace")
def _(told: Told) -> Any:
    spans = {span.span_id: span for span in told.spans}
    late = {
        span.name.split(" ")[1]
        for span in told.spans
        if span.kind == INTERNAL and span.start_time_unix_nano > spans[span.parent_span_id].end_time_unix_nano
    }
    return {"W4.IAPlanner", "W5.SectionWriter", "W6.LinkerAndPatcher"} <= late


@row("INVALID_INPUT: missing fields")
def _(told: Told) -> Any:
    return _code(told["no_config"]) == "INVALID_INPUT"


@row("SCHEMA_VALIDATION_FAILED: a config that its schema refuses")
def _(told: Told) -> Any:
    return (
        _code(told["bad_config"]) == "SCHEMA_VALIDATION_FAILED"
        and len(told["bad_config"]["error"]["details"]["errors"]) == 2
    )


@row("RUN_NOT_FOUND: an unknown run_id")
def _(told: Told) -> Any:
    return _code(told["unknown"]) == "RUN_NOT_FOUND"


@row("ILLEGAL_STATE: with the current state")
def _(told: Told) -> Any:
    return told["early_pr"]["error"]["details"]["current_state"] in (
        "CREATED",
        "CLONED_INPUTS",
        "INGESTED",
        "FACTS_READY",
    )


@row("GATE_FAILED is never an error")
def _(told: Told) -> Any:
    return told["validate"]["ok"] and (not told["validate"]["validation_report"]["ok"])


@row("RunStatus has its five fields")
def _(told: Told) -> Any:
    return told["status"]["status"].keys() == {"run_id", "state", "section_states", "open_issues", "artifacts"}


@row("open issues have id, severity, gate and title")
def _(told: Told) -> Any:
    return any(
        issue["gate"] == "truthlock" and issue["title"].startswith("Uncited")
        for issue in told["broken_status"]["status"]["open_issues"]
    )


@row("artifacts have name and sha256")
def _(told: Told) -> Any:
    return all(len(artifact["sha256"]) == 64 for artifact in told["status"]["status"]["artifacts"])


@row("an artifact comes with type, digest and content")
def _(told: Told) -> Any:
    return (
        hashlib.sha256(told["artifact"]["artifact"]["content"].encode()).hexdigest()
        == told["artifact"]["artifact"]["sha256"]
        and told["artifact"]["artifact"]["content_type"] == "application/json"
    )


@row("a non-text artifact is base64, and its type says so")
def _(told: Told) -> Any:
    return (
        base64.b64decode(told["binary"]["artifact"]["content"]) == b"\xff\xfe\x00"
        and "base64" in told["binary"]["artifact"]["content_type"]
    )


@row("an unknown artifact is INVALID_INPUT and is named")
def _(told: Told) -> Any:
    return (_code(told["no_artifact"]), told["no_artifact"]["error"]["details"]["artifact_name"]) == (
        "INVALID_INPUT",
        "../run_config.yaml",
    )


@row("start: run_id and CREATED")
def _(told: Told) -> Any:
    return told["start"]["state"] == "CREATED" and re.fullmatch(
        "r_\\d{4}-\\d\\d-\\d\\dT\\d\\d-\\d\\d-\\d\\dZ_[0-9a-f]{8}", told["start"]["run_id"]
    )


@row("start: same key and config, same run")
def _(told: Told) -> Any:
    return told["again"]["run_id"] == told["start"]["run_id"]


@row("start: same key and another config is INVALID_INPUT")
def _(told: Told) -> Any:
    return _code(told["other_config"]) == "INVALID_INPUT"


@row("product URL: the derived config")
def _(told: Told) -> Any:
    return told["page"]["derived_config"] == {
        "site": "products.aspose.org",
        "product_slug": "3d",
        "platform": "python",
        "locale": "en",
    }


@row("product URL: the deprecated alias is the same tool")
def _(told: Told) -> Any:
    return told["alias"]["run_id"] == told["page"]["run_id"]


@row("product URL: INVALID_URL")
def _(told: Told) -> Any:
    return _code(told["bad_url"]) == "INVALID_URL"


@row("product URL: UNSUPPORTED_SITE")
def _(told: Told) -> Any:
    return _code(told["bad_site"]) == "UNSUPPORTED_SITE"


@row("product URL: idempotent")
def _(told: Told) -> Any:
    return told["alias"]["derived_config"] == told["page"]["derived_config"]


@row("GitHub: the derived config has the defaults and HEAD pinned")
def _(told: Told) -> Any:
    return (
        told["github"]["derived_config"]["locales"] == ["en"]
        and told["github"]["derived_config"]["layout_mode"] == "auto"
        and (told["github"]["derived_config"]["allow_inference"] is False)
        and re.fullmatch("[0-9a-f]{40}", told["github"]["derived_config"]["github_ref"])
    )


@row("GitHub: ambiguous is INVALID_INPUT with fields and candidates")
def _(told: Told) -> Any:
    return (
        _code(told["unclear"]) == "INVALID_INPUT"
        and told["unclear"]["error"]["details"]["missing_fields"] == ["family", "target_platform"]
        and (told["unclear"]["error"]["details"]["suggested_values"]["target_platform"] == ["java", "python"])
    )


@row("GitHub: ambiguous starts no run")
def _(told: Told) -> Any:
    return len(set(told["runs_before_and_after"]["counts"])) == 1


@row("GitHub: INVALID_URL")
def _(told: Told) -> Any:
    return _code(told["bad_github"]) == "INVALID_URL"


@row("GitHub: REPO_NOT_FOUND")
def _(told: Told) -> Any:
    return _code(told["no_repo"]) == "REPO_NOT_FOUND"


@row("GitHub: idempotent")
def _(told: Told) -> Any:
    return told["github_again"]["run_id"] == told["github"]["run_id"]


@row("validate: refused before LINKING")
def _(told: Told) -> Any:
    return _code(told["early_validate"]) == "ILLEGAL_STATE"


@row("validate: refused after the pull request")
def _(told: Told) -> Any:
    return _code(told["late_validate"]) == "ILLEGAL_STATE"


@row("validate: the report is what its schema says")
def _(told: Told) -> Any:
    return json_schemas.problems("validation_report", told["validate"]["validation_report"]) == []


@row("fix: refused outside VALIDATING")
def _(told: Told) -> Any:
    return _code(told["early_fix"]) == "ILLEGAL_STATE"


@row("fix: refused when the report is ok")
def _(told: Told) -> Any:
    return _code(told["fix_of_nothing"]) == "ILLEGAL_STATE"


@row("fix: one issue, its patches, and what remains")
def _(told: Told) -> Any:
    return (
        told["fix"]["fixed_issue_id"].startswith("iss_")
        and told["fix"]["applied_patch_ids"] == ["patch_004"]
        and (told["fix"]["remaining_blockers"] == 0)
    )


@row("fix: validated again")
def _(told: Told) -> Any:
    return told["fix"]["validation_report"]["ok"]


@row("fix: FIX_EXHAUSTED leaves the run FAILED")
def _(told: Told) -> Any:
    return (_code(told["exhausted"]), told["tired_status"]["status"]["state"]) == ("FIX_EXHAUSTED", "FAILED")


@row("resume: the status, with run_id beside it")
def _(told: Told) -> Any:
    return told["resume"]["status"]["run_id"] == told["resume"]["run_id"] == told["start"]["run_id"]


@row("resume: refused at the end")
def _(told: Told) -> Any:
    return _code(told["late_resume"]) == "ILLEGAL_STATE"


@row("cancel: cancelled, and again")
def _(told: Told) -> Any:
    return all(
        (told[word]["cancelled"], told[word]["state"]) == (True, "CANCELLED") for word in ("cancel_first", "cancel")
    )


@row("cancel: refused when DONE")
def _(told: Told) -> Any:
    return told["late_cancel"]["error"]["details"]["current_state"] == "DONE"


@row("open_pr: refused before READY_FOR_PR")
def _(told: Told) -> Any:
    return _code(told["early_pr"]) == "ILLEGAL_STATE"


@row("open_pr: refused while the report is not ok")
def _(told: Told) -> Any:
    return _code(told["broken_pr"]) == "ILLEGAL_STATE"


@row("open_pr: address, branch and commit")
def _(told: Told) -> Any:
    return (
        told["pr"]["branch"] == f"launch/{told['start']['run_id']}/3d"
        and re.fullmatch("[0-9a-f]{40}", told["pr"]["commit_sha"])
        and told["pr"]["pr_url"]
    )


@row("open_pr: the run is DONE")
def _(told: Told) -> Any:
    return told["done"]["status"]["state"] == "DONE"


@row("list: the five fields, and an end where there is one")
def _(told: Told) -> Any:
    return (
        told["done_list"]["runs"][0].keys() == {"run_id", "product_slug", "state", "started_at", "finished_at"}
        and told["done_list"]["runs"][0]["finished_at"]
    )


@row("list: filtered by state and product")
def _(told: Told) -> Any:
    return [run["run_id"] for run in told["done_list"]["runs"]] == [told["start"]["run_id"]]


@row("telemetry: every event and a summary")
def _(told: Told) -> Any:
    return (
        told["telemetry"]["summary"]["total_events"] == len(_types(told))
        and told["telemetry"]["summary"]["event_types"]["RUN_CREATED"] == 1
    )


@row("telemetry: tool calls stand beside the work they caused")
def _(told: Told) -> Any:
    return {"MCP_TOOL_FINISHED", "MCP_TOOL_FAILED"} <= set(_types(told))


@row("no error that a retry cannot help is retryable")
def _(told: Told) -> Any:
    return not any(answer["error"]["retryable"] for answer in told.values() if "error" in answer)


@pytest.mark.parametrize(("sentence", "holds"), ROWS, ids=[sentence for sentence, _ in ROWS])
def test_the_contract_says(told: Told, sentence: str, holds: Holds) -> None:
    assert holds(told), sentence
