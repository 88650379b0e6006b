"""The journey that the contract is read against: every tool, in success and in each of its refusals."""

import asyncio
import json
from pathlib import Path
from typing import Any

import jsonschema

from backends.launch import sample
from backends.launch.options import Options
from backends.launch.quickstart.config import run_config
from tests.conftest import run_gateway
from tests.peers.collector import COLLECTORS

Json = dict[str, Any]
NAMES = {
    "launch_start_run", "launch_start_run_from_product_url", "launch_start_run_from_url",
    "launch_start_run_from_github_repo_url", "launch_get_status", "launch_get_artifact", "launch_validate",
    "launch_fix_next", "launch_resume", "launch_cancel", "launch_open_pr", "launch_list_runs",
    "launch_get_run_telemetry",
}  # fmt: skip
RUN_SCOPED = ("status", "artifact", "validate", "fix", "resume", "cancel", "pr", "telemetry", "start")


class Told(dict[str, Json]):
    """What each call was answered, by a short word; `tools` are the tools as listed."""

    tools: dict[str, Any]
    config: Json
    wrong: list[str]
    spans: list[Any]
    """Of the whole journey, as a real OTLP receiver got them."""


async def journey(folder: Path, era: str, protocol: str = "http") -> Told:
    with COLLECTORS[protocol]() as collector:
        told = await _told(folder, era, {"url": collector.url, "protocol": protocol})
    told.spans = collector.spans()
    return told


async def _told(folder: Path, era: str, otlp: Json) -> Told:
    _, site = sample.make(folder / "repositories")
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
    telemetry = {"traces": {"share": 1.0}, "otlp": otlp}
    async with (
        run_gateway(folder, backends={"launch": entry}, telemetry=telemetry) as gateway,
        gateway.client(era) as client,
    ):
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
        await call("cancel_first", "launch_cancel", run_id=told["github"]["run_id"])
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
        await call("cancel", "launch_cancel", run_id=told["github"]["run_id"])
    return told
