"""A row for every binding sentence of the contract, each checked in both eras against what the SDK's client was told."""

import asyncio
import base64
import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from backends.launch import sample, shapes
from backends.launch.options import Options
from backends.launch.quickstart.derived import run_config
from tests.conftest import HANDSHAKE, MODERN, run_gateway

Json = dict[str, Any]
NAMES = {
    "launch_start_run", "launch_start_run_from_product_url", "launch_start_run_from_url",
    "launch_start_run_from_github_repo_url", "launch_get_status", "launch_get_artifact", "launch_validate",
    "launch_fix_next", "launch_resume", "launch_cancel", "launch_open_pr", "launch_list_runs", "launch_get_run_telemetry",
}  # fmt: skip
RUN_SCOPED = ("status", "artifact", "validate", "fix", "resume", "cancel", "pr", "telemetry", "start")


class Told(dict[str, Json]):
    """What each call was answered, by a short word; `tools` are the tools as listed."""

    tools: dict[str, Any]
    config: Json
    wrong: list[str]


async def _journey(folder: Path, era: str) -> Told:
    product, site = sample.make(folder / "repositories")
    root = folder / "repositories"
    given = {
        "local_roots": [str(root)],
        "site_repo_url": str(site),
        "github_api": None,
        "github_clone_base": root.as_uri(),
    }
    config = run_config(Options.model_validate(given), "3d", "python", "en", sample.PRODUCT_URL, "0" * 40)
    config["required_sections"] = ["docs"]
    sample.repository(root / "someone" / "thing", {"setup.py": "", "pom.xml": ""})
    told = Told()
    told.config, told.wrong = config, []
    entry = {"module": "backends.launch", "options": given}
    async with run_gateway(folder, backends={"launch": entry}) as gateway, gateway.client(era) as client:
        told.tools = {tool.name: tool for tool in (await client.list_tools()).tools}

        async def call(word: str, tool: str, **arguments: Any) -> Json:
            result = await client.call_tool(tool, arguments)
            answer = result.structured_content
            assert answer is not None
            if result.is_error is answer["ok"]:
                told.wrong.append(f"{word}: isError and ok agree")
            if not result.is_error and json.loads(result.content[0].text) != answer:
                told.wrong.append(f"{word}: the text is not the structured content")
            jsonschema.Draft202012Validator(told.tools[tool].output_schema).validate(answer)
            told[word] = answer
            return answer

        async def until(run_id: str, *states: str) -> None:
            snapshot = folder / "data" / "files" / "default" / "launch" / "runs" / run_id / "snapshot.json"
            while json.loads(snapshot.read_bytes())["run_state"] not in states:
                await asyncio.sleep(0.05)
            await call("status", "launch_get_status", run_id=run_id)

        await call("start", "launch_start_run", run_config=config, idempotency_key="one")
        run_id = told["start"]["run_id"]
        await call("early_fix", "launch_fix_next", run_id=run_id)
        await call("early_pr", "launch_open_pr", run_id=run_id)
        await call("early_validate", "launch_validate", run_id=run_id)
        await call("again", "launch_start_run", run_config=config, idempotency_key="one")
        other = {**config, "max_fix_attempts": 1}
        await call("other_config", "launch_start_run", run_config=other, idempotency_key="one")
        await call("bad_config", "launch_start_run", run_config={**config, "family": 1, "surprise": True})
        await call("no_config", "launch_start_run")
        url = "https://products.aspose.org/3d/en/python/"
        await call("page", "launch_start_run_from_product_url", url=url, idempotency_key="page")
        await call("alias", "launch_start_run_from_url", url=url, idempotency_key="page")
        await call("bad_url", "launch_start_run_from_product_url", url="https://products.aspose.org/nothing/")
        await call("bad_site", "launch_start_run_from_product_url", url="https://example.org/3d/en/python/")
        github = "launch_start_run_from_github_repo_url"
        await call("github", github, github_repo_url=sample.PRODUCT_URL, idempotency_key="hub")
        await call("github_again", github, github_repo_url=sample.PRODUCT_URL, idempotency_key="hub")
        before = len((await call("list", "launch_list_runs"))["runs"])
        await call("unclear", github, github_repo_url="https://github.com/someone/thing")
        await call("bad_github", github, github_repo_url="https://example.org/a/b")
        await call("no_repo", github, github_repo_url="https://github.com/no/body")
        told["runs_before_and_after"] = {"counts": [before, len((await call("list", "launch_list_runs"))["runs"])]}
        for word in ("page", "github"):
            await call(f"cancel_{word}", "launch_cancel", run_id=told[word]["run_id"])
        await until(run_id, "READY_FOR_PR", "FAILED")
        await call("artifact", "launch_get_artifact", run_id=run_id, artifact_name="page_plan.json")
        await call("no_artifact", "launch_get_artifact", run_id=run_id, artifact_name="../run_config.yaml")
        files = folder / "data" / "files" / "default" / "launch" / "runs" / run_id
        (files / "artifacts" / "logo.bin").write_bytes(b"\xff\xfe\x00")
        await call("binary", "launch_get_artifact", run_id=run_id, artifact_name="logo.bin")
        page = files / "work/site/content/docs.aspose.org/3d/en/python/features.md"
        page.write_text(page.read_text() + "\n- It is the fastest of all.\n")
        await call("validate", "launch_validate", run_id=run_id)
        await call("broken_status", "launch_get_status", run_id=run_id)
        await call("broken_pr", "launch_open_pr", run_id=run_id)
        await call("fix", "launch_fix_next", run_id=run_id)
        await call("fix_of_nothing", "launch_fix_next", run_id=run_id)
        await call("resume", "launch_resume", run_id=run_id)
        await until(run_id, "READY_FOR_PR", "FAILED")
        await call("pr", "launch_open_pr", run_id=run_id)
        await call("done", "launch_get_status", run_id=run_id)
        await call("late_validate", "launch_validate", run_id=run_id)
        await call("late_resume", "launch_resume", run_id=run_id)
        await call("late_cancel", "launch_cancel", run_id=run_id)
        await call("telemetry", "launch_get_run_telemetry", run_id=run_id)
        await call("done_list", "launch_list_runs", filter={"state": "DONE", "product_slug": "3d"})
        await call("unknown", "launch_get_status", run_id="r_2020-01-01T00-00-00Z_00000000")
        # No attempts at all: the first broken page leaves nothing to try.
        hopeless = {**config, "max_fix_attempts": 0}
        tired = (await call("start_tired", "launch_start_run", run_config=hopeless))["run_id"]
        await until(tired, "READY_FOR_PR", "FAILED")
        tired_page = files.parent / tired / "work/site/content/docs.aspose.org/3d/en/python/features.md"
        tired_page.unlink()
        await call("tired_validate", "launch_validate", run_id=tired)
        await call("exhausted", "launch_fix_next", run_id=tired)
        await call("tired_status", "launch_get_status", run_id=tired)
        await call("cancel", "launch_cancel", run_id=told["page"]["run_id"])
    return told


@pytest.fixture(scope="module", params=[MODERN, HANDSHAKE])
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Told:
    return asyncio.run(_journey(tmp_path_factory.mktemp("contract"), request.param))


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


Row = tuple[str, Callable[[Told], Any]]
ROWS: list[Row] = [
    ("the tools have exactly the contract's names", lambda t: set(t.tools) == NAMES),
    ("requests are closed objects", lambda t: all(tool.input_schema["additionalProperties"] is False for tool in t.tools.values())),
    ("every tool states what it answers", lambda t: all(tool.output_schema["type"] == "object" for tool in t.tools.values())),
    ("every response has ok, as isError says", lambda t: not t.wrong),
    ("a success of a run-scoped tool has run_id", lambda t: all(t[word]["run_id"] for word in RUN_SCOPED)),
    ("a failure has the standard error shape", lambda t: {"code", "message", "retryable", "details"} <= t["bad_url"]["error"].keys()),
    ("a failure that names a run says which", lambda t: t["early_fix"]["run_id"] == t["start"]["run_id"]),
    ("every worker execution tells its start and its end", _work_items_are_told),
    ("every event has run_id, trace and span", _traced),
    ("INVALID_INPUT: missing fields", lambda t: _code(t["no_config"]) == "INVALID_INPUT"),
    ("SCHEMA_VALIDATION_FAILED: a config that its schema refuses", lambda t: _code(t["bad_config"]) == "SCHEMA_VALIDATION_FAILED" and len(t["bad_config"]["error"]["details"]["errors"]) == 2),
    ("RUN_NOT_FOUND: an unknown run_id", lambda t: _code(t["unknown"]) == "RUN_NOT_FOUND"),
    ("ILLEGAL_STATE: with the current state", lambda t: t["early_pr"]["error"]["details"]["current_state"] in ("CREATED", "CLONED_INPUTS", "INGESTED")),
    ("GATE_FAILED is never an error", lambda t: t["validate"]["ok"] and not t["validate"]["validation_report"]["ok"]),
    ("RunStatus has its five fields", lambda t: t["status"]["status"].keys() == {"run_id", "state", "section_states", "open_issues", "artifacts"}),
    ("open issues have id, severity, gate and title", lambda t: any(issue["gate"] == "truthlock" and issue["title"].startswith("Uncited") for issue in t["broken_status"]["status"]["open_issues"])),
    ("artifacts have name and sha256", lambda t: all(len(artifact["sha256"]) == 64 for artifact in t["status"]["status"]["artifacts"])),
    ("an artifact comes with type, digest and content", lambda t: hashlib.sha256(t["artifact"]["artifact"]["content"].encode()).hexdigest() == t["artifact"]["artifact"]["sha256"] and t["artifact"]["artifact"]["content_type"] == "application/json"),
    ("a non-text artifact is base64, and its type says so", lambda t: base64.b64decode(t["binary"]["artifact"]["content"]) == b"\xff\xfe\x00" and "base64" in t["binary"]["artifact"]["content_type"]),
    ("an unknown artifact is INVALID_INPUT and is named", lambda t: (_code(t["no_artifact"]), t["no_artifact"]["error"]["details"]["artifact_name"]) == ("INVALID_INPUT", "../run_config.yaml")),
    ("start: run_id and CREATED", lambda t: t["start"]["state"] == "CREATED" and re.fullmatch(r"r_\d{4}-\d\d-\d\dT\d\d-\d\d-\d\dZ_[0-9a-f]{8}", t["start"]["run_id"])),
    ("start: same key and config, same run", lambda t: t["again"]["run_id"] == t["start"]["run_id"]),
    ("start: same key and another config is INVALID_INPUT", lambda t: _code(t["other_config"]) == "INVALID_INPUT"),
    ("product URL: the derived config", lambda t: t["page"]["derived_config"] == {"site": "products.aspose.org", "product_slug": "3d", "platform": "python", "locale": "en"}),
    ("product URL: the deprecated alias is the same tool", lambda t: t["alias"]["run_id"] == t["page"]["run_id"]),
    ("product URL: INVALID_URL", lambda t: _code(t["bad_url"]) == "INVALID_URL"),
    ("product URL: UNSUPPORTED_SITE", lambda t: _code(t["bad_site"]) == "UNSUPPORTED_SITE"),
    ("product URL: idempotent", lambda t: t["alias"]["derived_config"] == t["page"]["derived_config"]),
    ("GitHub: the derived config has the defaults and HEAD pinned", lambda t: t["github"]["derived_config"]["locales"] == ["en"] and t["github"]["derived_config"]["layout_mode"] == "auto" and t["github"]["derived_config"]["allow_inference"] is False and re.fullmatch(r"[0-9a-f]{40}", t["github"]["derived_config"]["github_ref"])),
    ("GitHub: ambiguous is INVALID_INPUT with fields and candidates", lambda t: _code(t["unclear"]) == "INVALID_INPUT" and t["unclear"]["error"]["details"]["missing_fields"] == ["family", "target_platform"] and t["unclear"]["error"]["details"]["suggested_values"]["target_platform"] == ["java", "python"]),
    ("GitHub: ambiguous starts no run", lambda t: len(set(t["runs_before_and_after"]["counts"])) == 1),
    ("GitHub: INVALID_URL", lambda t: _code(t["bad_github"]) == "INVALID_URL"),
    ("GitHub: REPO_NOT_FOUND", lambda t: _code(t["no_repo"]) == "REPO_NOT_FOUND"),
    ("GitHub: idempotent", lambda t: t["github_again"]["run_id"] == t["github"]["run_id"]),
    ("validate: refused before LINKING", lambda t: _code(t["early_validate"]) == "ILLEGAL_STATE"),
    ("validate: refused after the pull request", lambda t: _code(t["late_validate"]) == "ILLEGAL_STATE"),
    ("validate: the report is what its schema says", lambda t: shapes.problems("validation_report", t["validate"]["validation_report"]) == []),
    ("fix: refused outside VALIDATING", lambda t: _code(t["early_fix"]) == "ILLEGAL_STATE"),
    ("fix: refused when the report is ok", lambda t: _code(t["fix_of_nothing"]) == "ILLEGAL_STATE"),
    ("fix: one issue, its patches, and what remains", lambda t: t["fix"]["fixed_issue_id"].startswith("iss_") and t["fix"]["applied_patch_ids"] == ["patch_004"] and t["fix"]["remaining_blockers"] == 0),
    ("fix: validated again", lambda t: t["fix"]["validation_report"]["ok"]),
    ("fix: FIX_EXHAUSTED leaves the run FAILED", lambda t: (_code(t["exhausted"]), t["tired_status"]["status"]["state"]) == ("FIX_EXHAUSTED", "FAILED")),
    ("resume: the status, with run_id beside it", lambda t: t["resume"]["status"]["run_id"] == t["resume"]["run_id"] == t["start"]["run_id"]),
    ("resume: refused at the end", lambda t: _code(t["late_resume"]) == "ILLEGAL_STATE"),
    ("cancel: cancelled, and again", lambda t: all((t[word]["cancelled"], t[word]["state"]) == (True, "CANCELLED") for word in ("cancel_page", "cancel"))),
    ("cancel: refused when DONE", lambda t: t["late_cancel"]["error"]["details"]["current_state"] == "DONE"),
    ("open_pr: refused before READY_FOR_PR", lambda t: _code(t["early_pr"]) == "ILLEGAL_STATE"),
    ("open_pr: refused while the report is not ok", lambda t: _code(t["broken_pr"]) == "ILLEGAL_STATE"),
    ("open_pr: address, branch and commit", lambda t: t["pr"]["branch"] == f"launch/{t['start']['run_id']}/3d" and re.fullmatch(r"[0-9a-f]{40}", t["pr"]["commit_sha"]) and t["pr"]["pr_url"]),
    ("open_pr: the run is DONE", lambda t: t["done"]["status"]["state"] == "DONE"),
    ("list: the five fields, and an end where there is one", lambda t: t["done_list"]["runs"][0].keys() == {"run_id", "product_slug", "state", "started_at", "finished_at"} and t["done_list"]["runs"][0]["finished_at"]),
    ("list: filtered by state and product", lambda t: [run["run_id"] for run in t["done_list"]["runs"]] == [t["start"]["run_id"]]),
    ("telemetry: every event and a summary", lambda t: t["telemetry"]["summary"]["total_events"] == len(_types(t)) and t["telemetry"]["summary"]["event_types"]["RUN_CREATED"] == 1),
    ("telemetry: tool calls stand beside the work they caused", lambda t: {"MCP_TOOL_FINISHED", "MCP_TOOL_FAILED"} <= set(_types(t))),
    ("no error that a retry cannot help is retryable", lambda t: not any(answer["error"]["retryable"] for answer in t.values() if "error" in answer)),
]  # fmt: skip


@pytest.mark.parametrize(("sentence", "holds"), ROWS, ids=[row[0] for row in ROWS])
def test_the_contract_says(told: Told, sentence: str, holds: Callable[[Told], Any]) -> None:
    assert holds(told), sentence
