"""The tool definitions: names, descriptions, closed schemas and annotations."""

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
    "description": "A repeated call with the same key and config returns the same run.",
}
_URL: Final[Json] = {"type": "string", "minLength": 1, "maxLength": 2000}
_STATE: Final[Json] = {"enum": [state.value for state in State]}


def _object(*texts: str, **others: Json) -> Json:
    """Schema of an object in which all properties are required."""
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
    """Schema of a result: all properties on success, the standard error shape on failure."""
    common: Json = {"ok": {"type": "boolean"}, "run_id": _TEXT, "error": _ERROR}
    return {
        "type": "object",
        "properties": {**common, **properties},
        "required": ["ok"],
        "if": {"properties": {"ok": {"const": True}}},
        "then": {"required": list(properties)},
        "else": {"required": ["error"]},
    }


def _report_schema() -> Json:
    """Return the schema of the validation report without the document keywords (`$id`, `$defs`)."""
    return {key: value for key, value in json_schemas.schema("validation_report").items() if not key.startswith("$")}


def _inline_refs(schema: Any, definitions: Json) -> Any:
    """Replace references by their definitions, so that the schema can be embedded in others."""
    if isinstance(schema, dict):
        found = cast("Json", schema)
        if "$ref" in found:
            return definitions[found["$ref"].rsplit("/", 1)[-1]]
        return {key: _inline_refs(value, definitions) for key, value in found.items()}
    if isinstance(schema, list):
        return [_inline_refs(each, definitions) for each in cast("list[Any]", schema)]
    return schema


@dataclass(frozen=True, slots=True)
class _Spec:
    """The definition of one tool."""

    name: str
    title: str
    description: str
    input_schema: Json
    output_properties: Json
    read_only: bool = False
    idempotent: bool = False
    """Whether a repeated call has no additional effect."""
    open_world: bool = False
    """Whether the tool accesses other machines."""


def tools() -> list[Tool]:
    return [_tool(spec) for spec in (*_start_specs(), *_read_specs(), *_action_specs())]


def _tool(spec: _Spec) -> Tool:
    return Tool(
        name=spec.name,
        title=spec.title,
        description=spec.description,
        input_schema=spec.input_schema,
        output_schema=_output(spec.output_properties),
        annotations=ToolAnnotations(
            read_only_hint=spec.read_only,
            destructive_hint=None if spec.read_only else spec.name == "launch_cancel",
            idempotent_hint=spec.read_only or spec.idempotent,
            open_world_hint=spec.open_world,
        ),
    )


def _start_specs() -> list[_Spec]:
    started: Json = {"run_id": _TEXT, "state": _STATE}
    config: Json = {"type": "object", "description": "Configuration of the launch; see run_config.schema.json."}
    page = _input({"url": _URL, "idempotency_key": _KEY}, "url")
    site: Json = {"type": "object", "required": ["site", "product_slug", "platform", "locale"]}
    inferred: Json = {"type": "object", "required": ["family", "target_platform", "github_repo_url", "github_ref"]}
    return [
        _Spec(
            "launch_start_run",
            "Start a launch",
            "Start a run from a run_config; it advances automatically.",
            _input({"run_config": config, "idempotency_key": _KEY}, "run_config"),
            started,
        ),
        _Spec(
            "launch_start_run_from_product_url",
            "Start from a product page",
            "Start a run from the URL of an Aspose product page.",
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
            "Infer family and platform from a public GitHub repository, and start a run if they are unambiguous.",
            _input({"github_repo_url": _URL, "idempotency_key": _KEY}, "github_repo_url"),
            {**started, "derived_config": inferred},
            open_world=True,
        ),
    ]


def _read_specs() -> list[_Spec]:
    artifact = _object("name", "content_type", "sha256", "content")
    run_entry = _object("run_id", "product_slug", "started_at", state=_STATE, finished_at={"type": ["string", "null"]})
    filter_properties: Json = {"product_slug": {"type": "string", "maxLength": 200}, "state": _STATE}
    name: Json = {
        "type": "string",
        "maxLength": 300,
        "description": "Name of the artifact as listed by launch_get_status.",
    }
    summary: Json = {"type": "object", "required": ["total_events", "event_types", "first_event", "last_event"]}
    return [
        _Spec(
            "launch_get_status",
            "Status of a run",
            "State, sections, open issues and artifacts of a run.",
            _RUN,
            {"run_id": _TEXT, "status": _STATUS},
            read_only=True,
        ),
        _Spec(
            "launch_get_artifact",
            "Read an artifact",
            "One artifact or report of a run, with its digest.",
            _input({"run_id": _RUN_ID, "artifact_name": name}, "run_id", "artifact_name"),
            {"run_id": _TEXT, "artifact": artifact},
            read_only=True,
        ),
        _Spec(
            "launch_list_runs",
            "List runs",
            "The tenant's runs, the newest first.",
            _input({"filter": _input(filter_properties)}),
            {"runs": {"type": "array", "items": run_entry}},
            read_only=True,
        ),
        _Spec(
            "get_run_telemetry",
            "Telemetry of a run",
            "The events of a run, and a summary of them.",
            _RUN,
            {"run_id": _TEXT, "events": {"type": "array", "items": {"type": "object"}}, "summary": summary},
            read_only=True,
        ),
    ]


def _action_specs() -> list[_Spec]:
    report = _inline_refs(_report_schema(), json_schemas.schema("validation_report")["$defs"])
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
            idempotent=True,
        ),
        _Spec("launch_fix_next", "Fix the next issue", "Fix the next issue and validate again.", _RUN, fixed),
        _Spec(
            "launch_resume",
            "Resume a run",
            "Continue from the last stable state to the next; the run then advances automatically.",
            _RUN,
            {"run_id": _TEXT, "status": _STATUS},
            idempotent=True,
        ),
        _Spec(
            "launch_cancel",
            "Cancel a run",
            "Cancel a run permanently.",
            _RUN,
            {"run_id": _TEXT, "cancelled": {"type": "boolean"}, "state": _STATE},
            idempotent=True,
        ),
        _Spec(
            "launch_open_pr",
            "Open the pull request",
            "Commit the validated pages and open the pull request.",
            _RUN,
            {"run_id": _TEXT, "pr_url": _TEXT, "branch": _TEXT, "commit_sha": _TEXT},
            open_world=True,
        ),
    ]
