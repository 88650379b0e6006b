"""Calls every launch tool through a real client, with success and with each kind of failure, for the contract tests."""

import asyncio
import json
from pathlib import Path
from typing import Any

import jsonschema

from backends.launch import sample
from backends.launch.options import Options
from backends.launch.quickstart.config import build_run_config
from tests.conftest import run_gateway
from tests.mcp_results import text_of
from tests.peers.collector import COLLECTORS

Json = dict[str, Any]
NAMES = {
    "launch_start_run", "launch_start_run_from_product_url", "launch_start_run_from_url",
    "launch_start_run_from_github_repo_url", "launch_get_status", "launch_get_artifact", "launch_validate",
    "launch_fix_next", "launch_resume", "launch_cancel", "launch_open_pr", "launch_list_runs",
    "launch_get_run_telemetry",
}  # fmt: skip
RUN_SCOPED = ("status", "artifact", "validate", "fix", "resume", "cancel", "pr", "telemetry", "start")


class Answers(dict[str, Json]):
    """The structured content of each call by a short name, and further data of the flow."""

    tools: dict[str, Any]
    config: Json
    mismatches: list[str]
    spans: list[Any]
    """All spans of the flow, as received by a real OTLP receiver."""


async def run_flow(folder: Path, era: str, protocol: str = "http") -> Answers:
    with COLLECTORS[protocol]() as collector:
        answers = await _run_calls(folder, era, {"url": collector.url, "protocol": protocol})
    answers.spans = collector.spans()
    return answers


async def _run_calls(folder: Path, era: str, otlp: Json) -> Answers:
    _, site = sample.create_repositories(folder / "repositories")
    root = folder / "repositories"
    options = {
        "local_roots": [str(root)],
        "site_repo_url": str(site),
        "github_api": None,
        "github_clone_base": root.as_uri(),
    }
    config = build_run_config(Options.model_validate(options), "3d", "python", "en", sample.PRODUCT_URL, "0" * 40)
    config["required_sections"] = ["docs"]
    sample.create_repository(root / "someone" / "thing", {"setup.py": "", "pom.xml": ""})
    answers = Answers()
    answers.config, answers.mismatches = config, []
    entry = {"module": "backends.launch", "options": options}
    telemetry = {"traces": {"share": 1.0}, "otlp": otlp}
    async with (
        run_gateway(folder, backends={"launch": entry}, telemetry=telemetry) as gateway,
        gateway.client(era) as client,
    ):
        answers.tools = {tool.name: tool for tool in (await client.list_tools()).tools}

        async def call(name: str, tool: str, **arguments: Any) -> Json:
            result = await client.call_tool(tool, arguments)
            answer = result.structured_content
            assert answer is not None
            if result.is_error is answer["ok"]:
                answers.mismatches.append(f"{name}: isError and ok agree")
            if not result.is_error and json.loads(text_of(result.content[0])) != answer:
                answers.mismatches.append(f"{name}: the text is not the structured content")
            jsonschema.Draft202012Validator(answers.tools[tool].output_schema).validate(answer)
            answers[name] = answer
            return answer

        async def until(run_id: str, *states: str) -> None:
            snapshot = folder / "data" / "files" / "default" / "launch" / "runs" / run_id / "snapshot.json"
            while json.loads(snapshot.read_bytes())["run_state"] not in states:
                await asyncio.sleep(0.05)
            await call("status", "launch_get_status", run_id=run_id)

        await call("start", "launch_start_run", run_config=config, idempotency_key="one")
        run_id = answers["start"]["run_id"]
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
        answers["runs_before_and_after"] = {"counts": [before, len((await call("list", "launch_list_runs"))["runs"])]}
        await call("cancel_first", "launch_cancel", run_id=answers["github"]["run_id"])
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
        # With zero fix attempts, the first broken page exhausts the fix loop.
        no_attempts = {**config, "max_fix_attempts": 0}
        exhausted_run = (await call("start_tired", "launch_start_run", run_config=no_attempts))["run_id"]
        await until(exhausted_run, "READY_FOR_PR", "FAILED")
        exhausted_page = files.parent / exhausted_run / "work/site/content/docs.aspose.org/3d/en/python/features.md"
        exhausted_page.unlink()
        await call("tired_validate", "launch_validate", run_id=exhausted_run)
        await call("exhausted", "launch_fix_next", run_id=exhausted_run)
        await call("tired_status", "launch_get_status", run_id=exhausted_run)
        await call("cancel", "launch_cancel", run_id=answers["github"]["run_id"])
    return answers
