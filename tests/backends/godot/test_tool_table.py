"""Consistency of the tool table: names, schemas, effects and annotations."""

import json
import re
from typing import Any

import jsonschema_rs
import pytest

from backends.godot import manifest
from backends.godot.envelope import CODES, OUTPUT_SCHEMA
from backends.godot.handlers.raw_operations import OPERATIONS
from backends.godot.parameter_notation import parse_parameters
from backends.godot.tool import Tool
from backends.godot.tool_table import TOOLS, select_tools
from gateway.errors import Kind

MANAGERS = [tool for tool in TOOLS.values() if tool.actions]
VERBS = (
    "create|add|set|get|remove|list|edit|save|load|read|write|delete|attach|detach|run|stop|start|launch|export|import"
    "|reimport|rename|move|duplicate|instance|connect|manage|convert|validate|generate|update|batch|take|capture|system"
    "|godot|meta|setup|blend|paint|configure|bake"
)


@pytest.mark.parametrize("tool", TOOLS.values(), ids=lambda tool: tool.name)
def test_names_are_snake_case_and_start_with_a_verb_or_godot(tool: Tool) -> None:
    assert re.fullmatch(r"[a-z][a-z0-9_]*", tool.name)
    assert re.match(VERBS, tool.name)


@pytest.mark.parametrize("tool", TOOLS.values(), ids=lambda tool: tool.name)
def test_schemas_are_closed_and_have_properties_and_required(tool: Tool) -> None:
    schema = tool.schema()
    assert schema["type"] == "object"
    assert schema["additionalProperties"] is False
    assert isinstance(schema["properties"], dict)
    assert set(schema["required"]) <= set(schema["properties"])
    jsonschema_rs.meta.validate(schema)


@pytest.mark.parametrize("tool", MANAGERS, ids=lambda tool: tool.name)
def test_manager_accepts_each_action_only_with_its_own_parameters(tool: Tool) -> None:
    validator = jsonschema_rs.validator_for(tool.schema())
    assert tool.schema()["properties"]["action"]["enum"] == [action.name for action in tool.actions]
    assert not validator.is_valid({})
    assert not validator.is_valid({"action": "no such"})
    for action in tool.actions:
        properties, required = parse_parameters(f"{tool.common_signature} {action.signature}")
        arguments: dict[str, Any] = {name: example(properties[name]) for name in required}
        for name in action.exactly_one_of.split()[:1]:
            arguments[name] = example(properties[name])
        assert validator.is_valid({"action": action.name, **arguments}), action.name
        assert not validator.is_valid({"action": action.name, **arguments, "other": 1})
        for name in required:
            assert not validator.is_valid({"action": action.name, **{k: v for k, v in arguments.items() if k != name}})


def example(schema: dict[str, Any]) -> Any:
    if "enum" in schema:
        return schema["enum"][0]
    match schema.get("type"):
        case "string":
            return "x"
        case "integer" | "number":
            return max(schema.get("minimum", 1), 1)
        case "boolean":
            return True
        case "object":
            return {}
        case "array":
            item = schema["items"]
            inner = {name: example(item["properties"][name]) for name in item.get("required", [])}
            return [inner if item.get("type") == "object" else "x"]
        case _:
            return "x"


def test_all_scene_tools_require_project_and_scene() -> None:
    for name in ("create_scene", "add_node", "edit_node", "remove_node", "rename_node", "move_node", "attach_script"):
        assert {"projectPath", "scenePath"} <= set(TOOLS[name].schema()["required"])


def test_queries_and_exports_have_no_effect_and_writes_have_one() -> None:
    effects = manifest.effects
    for name in (
        "get_node_tree",
        "list_scenes",
        "read_script",
        "export_project",
        "export_pack",
        "get_project_settings",
    ):
        assert effects[name] == 0, name
    for name in ("add_node", "write_script", "set_project_setting", "delete_script", "godot_headless_op"):
        assert effects[name] > 0, name
    assert set(effects) == set(TOOLS)


def test_annotations_match_the_effects() -> None:
    for tool in TOOLS.values():
        hints = tool.definition(gate_open=False)["annotations"]
        if hints["readOnlyHint"]:
            assert tool.effect == 0
            assert not hints["destructiveHint"]
    for name in ("run_project", "stop_project", "launch_editor"):
        assert TOOLS[name].definition(gate_open=False)["annotations"]["readOnlyHint"] is False


def test_every_kind_of_fault_has_one_of_the_seven_codes() -> None:
    assert set(CODES) == set(Kind)
    assert set(CODES.values()) == {
        "E_SCHEMA_VALIDATION", "E_NOT_CONNECTED", "E_NOT_FOUND", "E_PERMISSION_DENIED", "E_TIMEOUT", "E_UNSUPPORTED",
        "E_INTERNAL",
    }  # fmt: skip


def test_every_operation_maps_to_an_existing_tool_or_action() -> None:
    for target in OPERATIONS.values():
        name, _, action = target.partition(":")
        tool = TOOLS[name]
        assert (tool.find_action(action) if action else tool).handler is not None  # type: ignore[union-attr]


def test_output_schema_accepts_failures() -> None:
    validator = jsonschema_rs.validator_for(OUTPUT_SCHEMA)
    meta = {"tool": "x", "action": None, "correlationId": "c", "durationMs": 0}
    error = {"code": "E_INTERNAL", "message": "m", "retryable": False}
    assert validator.is_valid({"ok": False, "summary": "m", "result": None, "error": error, "meta": meta})


def test_core_profile_has_25_tools_and_a_quarter_of_the_size() -> None:
    sizes = {
        profile: len(json.dumps([tool.definition(gate_open=True) for tool in select_tools(profile).values()]))
        for profile in ("core", "full")
    }
    assert len(select_tools("core")) == 25
    assert sizes["core"] * 4 < sizes["full"] < 170_000
