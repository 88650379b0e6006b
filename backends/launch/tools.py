"""The tools as clients see them: names, closed schemas, annotations."""

from typing import Any, Final

from mcp.types import Tool, ToolAnnotations

from backends.launch import shapes
from backends.launch.states import SECTIONS, State
from gateway.contract import Json

_TEXT: Final[Json] = {"type": "string"}
_RUN_ID: Final[Json] = {"type": "string", "minLength": 1, "maxLength": 200, "description": "The run's id."}
_KEY: Final[Json] = {
    "type": "string",
    "minLength": 1,
    "maxLength": 200,
    "description": "The same key with the same config answers with the same run.",
}
_URL: Final[Json] = {"type": "string", "minLength": 1, "maxLength": 2000}
_STATE: Final[Json] = {"enum": [state.value for state in State]}
_ISSUE_HEAD: Final[Json] = {
    "type": "object",
    "properties": dict.fromkeys(("issue_id", "severity", "gate", "title"), _TEXT),
    "required": ["issue_id", "severity", "gate", "title"],
}
_ARTIFACT_HEAD: Final[Json] = {
    "type": "object",
    "properties": {"name": _TEXT, "sha256": _TEXT},
    "required": ["name", "sha256"],
}
_STATUS: Final[Json] = {
    "type": "object",
    "properties": {
        "run_id": _TEXT,
        "state": _STATE,
        "section_states": {"type": "object", "propertyNames": {"enum": list(SECTIONS)}},
        "open_issues": {"type": "array", "items": _ISSUE_HEAD},
        "artifacts": {"type": "array", "items": _ARTIFACT_HEAD},
    },
    "required": ["run_id", "state", "section_states", "open_issues", "artifacts"],
}
_ERROR: Final[Json] = {
    "type": "object",
    "properties": {"code": _TEXT, "message": _TEXT, "retryable": {"type": "boolean"}, "details": {"type": "object"}},
    "required": ["code", "message", "retryable", "details"],
}
_STARTED: Final[Json] = {"run_id": _TEXT, "state": _STATE}
_FACTS: Final = ("total_events", "event_types", "first_event", "last_event")


def _input(properties: Json, *required: str) -> Json:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def _output(properties: Json) -> Json:
    """Everything on success, the standard error shape on failure."""
    common: Json = {"ok": {"type": "boolean"}, "run_id": _TEXT, "error": _ERROR}
    return {
        "type": "object",
        "properties": {**common, **properties},
        "required": ["ok"],
        "if": {"properties": {"ok": {"const": True}}},
        "then": {"required": list(properties)},
        "else": {"required": ["error"]},
    }


def _report() -> Json:
    """The report's schema without what only names a document."""
    return {key: value for key, value in shapes.schema("validation_report").items() if not key.startswith("$")}


def _inlined(schema: Any, definitions: Json) -> Any:
    """References replaced by what they name: the schema becomes a part of others."""
    if isinstance(schema, dict):
        found: Json = schema
        if "$ref" in found:
            return definitions[found["$ref"].rsplit("/", 1)[-1]]
        return {key: _inlined(value, definitions) for key, value in found.items()}
    return [_inlined(each, definitions) for each in schema] if isinstance(schema, list) else schema  # pyright: ignore[reportUnknownVariableType]


def _tool(
    name: str,
    title: str,
    description: str,
    given: Json,
    answer: Json,
    *,
    read: bool = False,
    again: bool = False,
    away: bool = False,
) -> Tool:
    return Tool(
        name=name,
        title=title,
        description=description,
        input_schema=given,
        output_schema=_output(answer),
        annotations=ToolAnnotations(
            read_only_hint=read,
            destructive_hint=None if read else name == "launch_cancel",
            idempotent_hint=read or again,
            open_world_hint=away,
        ),
    )


def tools() -> list[Tool]:
    report = _inlined(_report(), shapes.schema("validation_report")["$defs"])
    run, start = _input({"run_id": _RUN_ID}, "run_id"), {"idempotency_key": _KEY}
    product = _input({"url": _URL, **start}, "url")
    site: Json = {"type": "object", "required": ["site", "product_slug", "platform", "locale"]}
    config: Json = {"type": "object", "description": "What the launch is to do: run_config.schema.json."}
    fixed: Json = {
        "run_id": _TEXT,
        "fixed_issue_id": _TEXT,
        "applied_patch_ids": {"type": "array", "items": _TEXT},
        "remaining_blockers": {"type": "integer"},
        "validation_report": report,
    }
    listed: Json = {
        "type": "object",
        "properties": {
            "run_id": _TEXT,
            "product_slug": _TEXT,
            "state": _STATE,
            "started_at": _TEXT,
            "finished_at": {"type": ["string", "null"]},
        },
        "required": ["run_id", "product_slug", "state", "started_at", "finished_at"],
    }
    artifact: Json = {
        "type": "object",
        "properties": {"name": _TEXT, "content_type": _TEXT, "sha256": _TEXT, "content": _TEXT},
        "required": ["name", "content_type", "sha256", "content"],
    }
    wanted: Json = {"type": "object", "additionalProperties": False}
    wanted["properties"] = {"product_slug": {"type": "string", "maxLength": 200}, "state": _STATE}
    pull: Json = {"run_id": _TEXT, "pr_url": _TEXT, "branch": _TEXT, "commit_sha": _TEXT}
    github = _input({"github_repo_url": _URL, **start}, "github_repo_url")
    github_config: Json = {"type": "object", "required": ["family", "target_platform", "github_repo_url", "github_ref"]}
    one_artifact = _input(
        {"run_id": _RUN_ID, "artifact_name": {"type": "string", "maxLength": 300}}, "run_id", "artifact_name"
    )
    summary: Json = {"type": "object", "required": list(_FACTS)}
    events: Json = {"type": "array", "items": {"type": "object"}}
    return [
        _tool("launch_start_run", "Start a launch", "Start a run from a run_config; it advances by itself.", _input({"run_config": config, **start}, "run_config"), _STARTED, again=True),
        _tool("launch_start_run_from_product_url", "Start from a product page", "Start a run from the address of an Aspose product page.", product, {**_STARTED, "derived_config": site}, again=True),
        _tool("launch_start_run_from_url", "Start from a product page (deprecated)", "Deprecated: use launch_start_run_from_product_url.", product, {**_STARTED, "derived_config": site}, again=True),
        _tool("launch_start_run_from_github_repo_url", "Start from a GitHub repository", "Infer family and platform from a public GitHub repository, and start a run when they are certain.", github, {**_STARTED, "derived_config": github_config}, again=True, away=True),
        _tool("launch_get_status", "Status of a run", "State, sections, open issues and artifacts of a run.", run, {"run_id": _TEXT, "status": _STATUS}, read=True),
        _tool("launch_get_artifact", "Read an artifact", "One artifact or report of a run, with its digest.", one_artifact, {"run_id": _TEXT, "artifact": artifact}, read=True),
        _tool("launch_validate", "Validate a run", "Run all gates over the site's worktree; validation_report.ok says whether they passed.", run, {"run_id": _TEXT, "validation_report": report}, again=True),
        _tool("launch_fix_next", "Fix the next issue", "Mend the first issue that has a repair, and validate again.", run, fixed),
        _tool("launch_resume", "Resume a run", "Continue from the last stable state to the next; the rest goes on by itself.", run, {"run_id": _TEXT, "status": _STATUS}, again=True),
        _tool("launch_cancel", "Cancel a run", "Stop a run for good.", run, {"run_id": _TEXT, "cancelled": {"type": "boolean"}, "state": _STATE}, again=True),
        _tool("launch_open_pr", "Open the pull request", "Commit the validated pages and open the pull request.", run, pull, away=True),
        _tool("launch_list_runs", "List runs", "The tenant's runs, the newest first.", _input({"filter": wanted}), {"runs": {"type": "array", "items": listed}}, read=True),
        _tool("get_run_telemetry", "Telemetry of a run", "The events of a run, and a summary of them.", run, {"run_id": _TEXT, "events": events, "summary": summary}, read=True),
    ]  # fmt: skip
