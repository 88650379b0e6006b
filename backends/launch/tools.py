"""The tools as clients see them: names, closed schemas, annotations."""

from dataclasses import dataclass
from typing import Any, Final, cast

from mcp.types import Tool, ToolAnnotations

from backends.launch import json_schemas
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


def _object(*texts: str, **others: Json) -> Json:
    """An object that has all of these."""
    properties: Json = {**dict.fromkeys(texts, _TEXT), **others}
    return {"type": "object", "properties": properties, "required": list(properties)}


_STATUS: Final[Json] = _object(
    "run_id",
    state=_STATE,
    section_states={"type": "object", "propertyNames": {"enum": list(SECTIONS)}},
    open_issues={"type": "array", "items": _object("issue_id", "severity", "gate", "title")},
    artifacts={"type": "array", "items": _object("name", "sha256")},
)
_ERROR: Final[Json] = _object("code", "message", retryable={"type": "boolean"}, details={"type": "object"})


def _input(properties: Json, *required: str) -> Json:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


_RUN: Final[Json] = _input({"run_id": _RUN_ID}, "run_id")


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
    return {key: value for key, value in json_schemas.schema("validation_report").items() if not key.startswith("$")}


def _inlined(schema: Any, definitions: Json) -> Any:
    """References replaced by what they name: the schema becomes a part of others."""
    if isinstance(schema, dict):
        found = cast("Json", schema)
        if "$ref" in found:
            return definitions[found["$ref"].rsplit("/", 1)[-1]]
        return {key: _inlined(value, definitions) for key, value in found.items()}
    if isinstance(schema, list):
        return [_inlined(each, definitions) for each in cast("list[Any]", schema)]
    return schema


@dataclass(frozen=True, slots=True)
class _Spec:
    """One tool: what it takes and what it answers."""

    name: str
    title: str
    description: str
    given: Json
    answer: Json
    read: bool = False
    again: bool = False
    """Whether the same call twice does no more than once."""
    away: bool = False
    """Whether it reaches beyond this machine."""


def tools() -> list[Tool]:
    return [_tool(spec) for spec in (*_starting(), *_looking(), *_moving())]


def _tool(spec: _Spec) -> Tool:
    return Tool(
        name=spec.name,
        title=spec.title,
        description=spec.description,
        input_schema=spec.given,
        output_schema=_output(spec.answer),
        annotations=ToolAnnotations(
            read_only_hint=spec.read,
            destructive_hint=None if spec.read else spec.name == "launch_cancel",
            idempotent_hint=spec.read or spec.again,
            open_world_hint=spec.away,
        ),
    )


def _starting() -> list[_Spec]:
    started: Json = {"run_id": _TEXT, "state": _STATE}
    config: Json = {"type": "object", "description": "What the launch is to do: run_config.schema.json."}
    page = _input({"url": _URL, "idempotency_key": _KEY}, "url")
    site: Json = {"type": "object", "required": ["site", "product_slug", "platform", "locale"]}
    inferred: Json = {"type": "object", "required": ["family", "target_platform", "github_repo_url", "github_ref"]}
    return [
        _Spec(
            "launch_start_run",
            "Start a launch",
            "Start a run from a run_config; it advances by itself.",
            _input({"run_config": config, "idempotency_key": _KEY}, "run_config"),
            started,
        ),
        _Spec(
            "launch_start_run_from_product_url",
            "Start from a product page",
            "Start a run from the address of an Aspose product page.",
            page,
            {**started, "derived_config": site},
        ),
        _Spec(
            "launch_start_run_from_url",
            "Start from a product page (deprecated)",
            "Deprecated: use launch_start_run_from_product_url.",
            page,
            {**started, "derived_config": site},
        ),
        _Spec(
            "launch_start_run_from_github_repo_url",
            "Start from a GitHub repository",
            "Infer family and platform from a public GitHub repository, and start a run when they are certain.",
            _input({"github_repo_url": _URL, "idempotency_key": _KEY}, "github_repo_url"),
            {**started, "derived_config": inferred},
            away=True,
        ),
    ]


def _looking() -> list[_Spec]:
    artifact = _object("name", "content_type", "sha256", "content")
    listed = _object("run_id", "product_slug", "started_at", state=_STATE, finished_at={"type": ["string", "null"]})
    wanted: Json = {"product_slug": {"type": "string", "maxLength": 200}, "state": _STATE}
    name: Json = {"type": "string", "maxLength": 300, "description": "As the status lists it."}
    facts: Json = {"type": "object", "required": ["total_events", "event_types", "first_event", "last_event"]}
    return [
        _Spec(
            "launch_get_status",
            "Status of a run",
            "State, sections, open issues and artifacts of a run.",
            _RUN,
            {"run_id": _TEXT, "status": _STATUS},
            read=True,
        ),
        _Spec(
            "launch_get_artifact",
            "Read an artifact",
            "One artifact or report of a run, with its digest.",
            _input({"run_id": _RUN_ID, "artifact_name": name}, "run_id", "artifact_name"),
            {"run_id": _TEXT, "artifact": artifact},
            read=True,
        ),
        _Spec(
            "launch_list_runs",
            "List runs",
            "The tenant's runs, the newest first.",
            _input({"filter": _input(wanted)}),
            {"runs": {"type": "array", "items": listed}},
            read=True,
        ),
        _Spec(
            "get_run_telemetry",
            "Telemetry of a run",
            "The events of a run, and a summary of them.",
            _RUN,
            {"run_id": _TEXT, "events": {"type": "array", "items": {"type": "object"}}, "summary": facts},
            read=True,
        ),
    ]


def _moving() -> list[_Spec]:
    report = _inlined(_report(), json_schemas.schema("validation_report")["$defs"])
    fixed: Json = {
        "run_id": _TEXT,
        "fixed_issue_id": _TEXT,
        "applied_patch_ids": {"type": "array", "items": _TEXT},
        "remaining_blockers": {"type": "integer"},
        "validation_report": report,
    }
    return [
        _Spec(
            "launch_validate",
            "Validate a run",
            "Run all gates over the site's worktree; validation_report.ok says whether they passed.",
            _RUN,
            {"run_id": _TEXT, "validation_report": report},
            again=True,
        ),
        _Spec("launch_fix_next", "Fix the next issue", "Mend the next issue, and validate again.", _RUN, fixed),
        _Spec(
            "launch_resume",
            "Resume a run",
            "Continue from the last stable state to the next; the rest goes on by itself.",
            _RUN,
            {"run_id": _TEXT, "status": _STATUS},
            again=True,
        ),
        _Spec(
            "launch_cancel",
            "Cancel a run",
            "Stop a run for good.",
            _RUN,
            {"run_id": _TEXT, "cancelled": {"type": "boolean"}, "state": _STATE},
            again=True,
        ),
        _Spec(
            "launch_open_pr",
            "Open the pull request",
            "Commit the validated pages and open the pull request.",
            _RUN,
            {"run_id": _TEXT, "pr_url": _TEXT, "branch": _TEXT, "commit_sha": _TEXT},
            away=True,
        ),
    ]
