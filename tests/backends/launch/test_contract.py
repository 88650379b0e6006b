"""One row for every requirement of the contract, checked in both protocol eras against the answers of a real client."""

import asyncio
import base64
import hashlib
import re
from collections.abc import Callable
from typing import Any

import pytest

from backends.launch import json_schemas
from tests.backends.launch.contract_flow import NAMES, RUN_SCOPED, Answers, Json, run_flow
from tests.conftest import HANDSHAKE, MODERN
from tests.peers.collector import attributes

Holds = Callable[[Answers], Any]
ROWS: list[tuple[str, Holds]] = []
INTERNAL, SERVER = 1, 2


def row(sentence: str) -> Callable[[Holds], Holds]:
    def add(holds: Holds) -> Holds:
        ROWS.append((sentence, holds))
        return holds

    return add


@pytest.fixture(scope="module", params=[(MODERN, "http"), (HANDSHAKE, "grpc")], ids=[MODERN, HANDSHAKE])
def answers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Answers:
    return asyncio.run(run_flow(tmp_path_factory.mktemp("contract"), *request.param))


def _code(answer: Json) -> str:
    return answer["error"]["code"]


def _types(answers: Answers) -> list[str]:
    return [event["type"] for event in answers["telemetry"]["events"]]


def _all_work_items_are_recorded(answers: Answers) -> bool:
    events = answers["telemetry"]["events"]
    started = {event["payload"]["work_item_id"] for event in events if event["type"] == "WORK_ITEM_STARTED"}
    ended = {
        event["payload"]["work_item_id"]
        for event in events
        if event["type"] in ("WORK_ITEM_FINISHED", "WORK_ITEM_FAILED")
    }
    return bool(started) and started == ended


def _all_events_are_traced(answers: Answers) -> bool:
    return all(
        event["run_id"] == answers["start"]["run_id"] and event["trace_id"] and event["span_id"]
        for event in answers["telemetry"]["events"]
    )


@row("the tools have exactly the contract's names")
def _(answers: Answers) -> Any:
    return set(answers.tools) == NAMES


@row("requests are closed objects")
def _(answers: Answers) -> Any:
    return all(tool.input_schema["additionalProperties"] is False for tool in answers.tools.values())


@row("every tool has an output schema")
def _(answers: Answers) -> Any:
    return all(tool.output_schema["type"] == "object" for tool in answers.tools.values())


@row("every response has ok, consistent with isError")
def _(answers: Answers) -> Any:
    return not answers.mismatches


@row("a success of a run-scoped tool has run_id")
def _(answers: Answers) -> Any:
    return all(answers[name]["run_id"] for name in RUN_SCOPED)


@row("a failure has the standard error shape")
def _(answers: Answers) -> Any:
    return {"code", "message", "retryable", "details"} <= answers["bad_url"]["error"].keys()


@row("a failure of a run-scoped tool has run_id")
def _(answers: Answers) -> Any:
    return answers["early_fix"]["run_id"] == answers["start"]["run_id"]


@row("every worker execution records its start and its end")
def _(answers: Answers) -> Any:
    return _all_work_items_are_recorded(answers)


@row("every event has run_id, trace and span")
def _(answers: Answers) -> Any:
    return _all_events_are_traced(answers)


@row("every work item is a span below the call that caused it, with the same ids as in the journal")
def _(answers: Answers) -> Any:
    spans = {span.span_id.hex(): span for span in answers.spans}
    started = [event for event in answers["telemetry"]["events"] if event["type"] == "WORK_ITEM_STARTED"]
    causes = set[str]()
    for event in started:
        span = spans[event["span_id"]]
        cause = spans[event["parent_span_id"]]
        span_attributes = attributes(span)
        worker, attempt, scope = event["payload"]["work_item_id"].split(":", 3)[1:]
        assert span.name == f"launch {worker}"
        assert (span.kind, cause.kind) == (INTERNAL, SERVER)
        assert span.trace_id == cause.trace_id == bytes.fromhex(event["trace_id"])
        assert span.parent_span_id == cause.span_id
        assert (span_attributes["launch.attempt"], span_attributes["launch.scope"]) == (int(attempt), scope)
        assert span_attributes["launch.run_id"] == event["run_id"]
        assert span_attributes["gatehouse.correlation_id"] == attributes(cause)["gatehouse.correlation_id"]
        assert span_attributes["gatehouse.tenant"] == "default"
        assert span.start_time_unix_nano < span.end_time_unix_nano
        causes.add(cause.name)
    wanted = {f"tools/call launch.{tool}" for tool in ("start_run", "validate", "fix_next", "open_pr")}
    return causes >= wanted


@row("work that continues after the call's response stays below the call in the same trace")
def _(answers: Answers) -> Any:
    spans = {span.span_id: span for span in answers.spans}
    late = {
        span.name.split(" ")[1]
        for span in answers.spans
        if span.kind == INTERNAL and span.start_time_unix_nano > spans[span.parent_span_id].end_time_unix_nano
    }
    return {"W4.IAPlanner", "W5.SectionWriter", "W6.LinkerAndPatcher"} <= late


@row("INVALID_INPUT: missing fields")
def _(answers: Answers) -> Any:
    return _code(answers["no_config"]) == "INVALID_INPUT"


@row("SCHEMA_VALIDATION_FAILED: a config that violates its schema")
def _(answers: Answers) -> Any:
    return (
        _code(answers["bad_config"]) == "SCHEMA_VALIDATION_FAILED"
        and len(answers["bad_config"]["error"]["details"]["errors"]) == 2
    )


@row("RUN_NOT_FOUND: an unknown run_id")
def _(answers: Answers) -> Any:
    return _code(answers["unknown"]) == "RUN_NOT_FOUND"


@row("ILLEGAL_STATE: with the current state")
def _(answers: Answers) -> Any:
    return answers["early_pr"]["error"]["details"]["current_state"] in (
        "CREATED",
        "CLONED_INPUTS",
        "INGESTED",
        "FACTS_READY",
    )


@row("GATE_FAILED is never an error")
def _(answers: Answers) -> Any:
    return answers["validate"]["ok"] and (not answers["validate"]["validation_report"]["ok"])


@row("RunStatus has its five fields")
def _(answers: Answers) -> Any:
    return answers["status"]["status"].keys() == {"run_id", "state", "section_states", "open_issues", "artifacts"}


@row("open issues have id, severity, gate and title")
def _(answers: Answers) -> Any:
    return any(
        issue["gate"] == "truthlock" and issue["title"].startswith("Uncited")
        for issue in answers["broken_status"]["status"]["open_issues"]
    )


@row("artifacts have name and sha256")
def _(answers: Answers) -> Any:
    return all(len(artifact["sha256"]) == 64 for artifact in answers["status"]["status"]["artifacts"])


@row("an artifact comes with type, digest and content")
def _(answers: Answers) -> Any:
    return (
        hashlib.sha256(answers["artifact"]["artifact"]["content"].encode()).hexdigest()
        == answers["artifact"]["artifact"]["sha256"]
        and answers["artifact"]["artifact"]["content_type"] == "application/json"
    )


@row("a non-text artifact is base64, and its type says so")
def _(answers: Answers) -> Any:
    return (
        base64.b64decode(answers["binary"]["artifact"]["content"]) == b"\xff\xfe\x00"
        and "base64" in answers["binary"]["artifact"]["content_type"]
    )


@row("an unknown artifact is INVALID_INPUT and is named")
def _(answers: Answers) -> Any:
    return (_code(answers["no_artifact"]), answers["no_artifact"]["error"]["details"]["artifact_name"]) == (
        "INVALID_INPUT",
        "../run_config.yaml",
    )


@row("start: run_id and CREATED")
def _(answers: Answers) -> Any:
    return answers["start"]["state"] == "CREATED" and re.fullmatch(
        "r_\\d{4}-\\d\\d-\\d\\dT\\d\\d-\\d\\d-\\d\\dZ_[0-9a-f]{8}", answers["start"]["run_id"]
    )


@row("start: same key and config, same run")
def _(answers: Answers) -> Any:
    return answers["again"]["run_id"] == answers["start"]["run_id"]


@row("start: same key and another config is INVALID_INPUT")
def _(answers: Answers) -> Any:
    return _code(answers["other_config"]) == "INVALID_INPUT"


@row("product URL: the derived config")
def _(answers: Answers) -> Any:
    return answers["page"]["derived_config"] == {
        "site": "products.aspose.org",
        "product_slug": "3d",
        "platform": "python",
        "locale": "en",
    }


@row("product URL: the deprecated alias is the same tool")
def _(answers: Answers) -> Any:
    return answers["alias"]["run_id"] == answers["page"]["run_id"]


@row("product URL: INVALID_URL")
def _(answers: Answers) -> Any:
    return _code(answers["bad_url"]) == "INVALID_URL"


@row("product URL: UNSUPPORTED_SITE")
def _(answers: Answers) -> Any:
    return _code(answers["bad_site"]) == "UNSUPPORTED_SITE"


@row("product URL: idempotent")
def _(answers: Answers) -> Any:
    return answers["alias"]["derived_config"] == answers["page"]["derived_config"]


@row("GitHub: the derived config has the defaults and HEAD pinned")
def _(answers: Answers) -> Any:
    return (
        answers["github"]["derived_config"]["locales"] == ["en"]
        and answers["github"]["derived_config"]["layout_mode"] == "auto"
        and (answers["github"]["derived_config"]["allow_inference"] is False)
        and re.fullmatch("[0-9a-f]{40}", answers["github"]["derived_config"]["github_ref"])
    )


@row("GitHub: ambiguous is INVALID_INPUT with fields and candidates")
def _(answers: Answers) -> Any:
    return (
        _code(answers["unclear"]) == "INVALID_INPUT"
        and answers["unclear"]["error"]["details"]["missing_fields"] == ["family", "target_platform"]
        and (answers["unclear"]["error"]["details"]["suggested_values"]["target_platform"] == ["java", "python"])
    )


@row("GitHub: ambiguous starts no run")
def _(answers: Answers) -> Any:
    return len(set(answers["runs_before_and_after"]["counts"])) == 1


@row("GitHub: INVALID_URL")
def _(answers: Answers) -> Any:
    return _code(answers["bad_github"]) == "INVALID_URL"


@row("GitHub: REPO_NOT_FOUND")
def _(answers: Answers) -> Any:
    return _code(answers["no_repo"]) == "REPO_NOT_FOUND"


@row("GitHub: idempotent")
def _(answers: Answers) -> Any:
    return answers["github_again"]["run_id"] == answers["github"]["run_id"]


@row("validate: rejected before LINKING")
def _(answers: Answers) -> Any:
    return _code(answers["early_validate"]) == "ILLEGAL_STATE"


@row("validate: rejected after the pull request")
def _(answers: Answers) -> Any:
    return _code(answers["late_validate"]) == "ILLEGAL_STATE"


@row("validate: the report matches its schema")
def _(answers: Answers) -> Any:
    return json_schemas.problems("validation_report", answers["validate"]["validation_report"]) == []


@row("fix: rejected outside VALIDATING")
def _(answers: Answers) -> Any:
    return _code(answers["early_fix"]) == "ILLEGAL_STATE"


@row("fix: rejected when the report is ok")
def _(answers: Answers) -> Any:
    return _code(answers["fix_of_nothing"]) == "ILLEGAL_STATE"


@row("fix: one issue, its patches, and the remaining blockers")
def _(answers: Answers) -> Any:
    return (
        answers["fix"]["fixed_issue_id"].startswith("iss_")
        and answers["fix"]["applied_patch_ids"] == ["patch_004"]
        and (answers["fix"]["remaining_blockers"] == 0)
    )


@row("fix: validated again")
def _(answers: Answers) -> Any:
    return answers["fix"]["validation_report"]["ok"]


@row("fix: FIX_EXHAUSTED leaves the run FAILED")
def _(answers: Answers) -> Any:
    return (_code(answers["exhausted"]), answers["tired_status"]["status"]["state"]) == ("FIX_EXHAUSTED", "FAILED")


@row("resume: run_id and status")
def _(answers: Answers) -> Any:
    return answers["resume"]["status"]["run_id"] == answers["resume"]["run_id"] == answers["start"]["run_id"]


@row("resume: rejected in a terminal state")
def _(answers: Answers) -> Any:
    return _code(answers["late_resume"]) == "ILLEGAL_STATE"


@row("cancel: idempotent")
def _(answers: Answers) -> Any:
    return all(
        (answers[name]["cancelled"], answers[name]["state"]) == (True, "CANCELLED")
        for name in ("cancel_first", "cancel")
    )


@row("cancel: rejected when DONE")
def _(answers: Answers) -> Any:
    return answers["late_cancel"]["error"]["details"]["current_state"] == "DONE"


@row("open_pr: rejected before READY_FOR_PR")
def _(answers: Answers) -> Any:
    return _code(answers["early_pr"]) == "ILLEGAL_STATE"


@row("open_pr: rejected while the report is not ok")
def _(answers: Answers) -> Any:
    return _code(answers["broken_pr"]) == "ILLEGAL_STATE"


@row("open_pr: URL, branch and commit")
def _(answers: Answers) -> Any:
    return (
        answers["pr"]["branch"] == f"launch/{answers['start']['run_id']}/3d"
        and re.fullmatch("[0-9a-f]{40}", answers["pr"]["commit_sha"])
        and answers["pr"]["pr_url"]
    )


@row("open_pr: the run is DONE")
def _(answers: Answers) -> Any:
    return answers["done"]["status"]["state"] == "DONE"


@row("list: the five fields, with finished_at of an ended run")
def _(answers: Answers) -> Any:
    return (
        answers["done_list"]["runs"][0].keys() == {"run_id", "product_slug", "state", "started_at", "finished_at"}
        and answers["done_list"]["runs"][0]["finished_at"]
    )


@row("list: filtered by state and product")
def _(answers: Answers) -> Any:
    return [run["run_id"] for run in answers["done_list"]["runs"]] == [answers["start"]["run_id"]]


@row("telemetry: every event and a summary")
def _(answers: Answers) -> Any:
    return (
        answers["telemetry"]["summary"]["total_events"] == len(_types(answers))
        and answers["telemetry"]["summary"]["event_types"]["RUN_CREATED"] == 1
    )


@row("telemetry: contains tool calls as well as work items")
def _(answers: Answers) -> Any:
    return {"MCP_TOOL_FINISHED", "MCP_TOOL_FAILED"} <= set(_types(answers))


@row("permanent errors are not retryable")
def _(answers: Answers) -> Any:
    return not any(answer["error"]["retryable"] for answer in answers.values() if "error" in answer)


@pytest.mark.parametrize(("sentence", "holds"), ROWS, ids=[sentence for sentence, _ in ROWS])
def test_contract_requirement_holds(answers: Answers, sentence: str, holds: Holds) -> None:
    assert holds(answers), sentence
