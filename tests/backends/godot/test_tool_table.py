"""The tables: every tool is a row, and every row says the truth of itself."""

import re
from typing import Any

import jsonschema_rs
import pytest

from backends.godot import manifest
from backends.godot.envelope import OUTPUT_SCHEMA, WORDS
from backends.godot.handlers.raw_operations import OPERATIONS
from backends.godot.parameter_notation import parameters
from backends.godot.tool import Tool
from backends.godot.tool_table import TOOLS
from gateway.errors import Kind

MANAGERS = [tool for tool in TOOLS.values() if tool.actions]
VERBS = (
    "create|add|set|get|remove|list|edit|save|load|read|write|delete|attach|detach|run|stop|start|launch|export|import"
    "|reimport|rename|move|duplicate|instance|connect|manage|convert|validate|generate|update|batch|take|capture|system"
    "|godot|meta"
)


@pytest.mark.parametrize("tool", TOOLS.values(), ids=lambda tool: tool.name)
def test_names_are_snake_case_and_begin_with_a_verb_or_the_engine(tool: Tool) -> None:
    assert re.fullmatch(r"[a-z][a-z0-9_]*", tool.name)
    assert re.match(VERBS, tool.name)


@pytest.mark.parametrize("tool", TOOLS.values(), ids=lambda tool: tool.name)
def test_schemas_are_closed_and_always_name_properties_and_required(tool: Tool) -> None:
    schema = tool.schema()
    assert schema["type"] == "object"
    assert schema["additionalProperties"] is False
    assert isinstance(schema["properties"], dict)
    assert set(schema["required"]) <= set(schema["properties"])
    jsonschema_rs.meta.validate(schema)


@pytest.mark.parametrize("tool", MANAGERS, ids=lambda tool: tool.name)
def test_a_manager_takes_each_action_with_its_own_parameters_only(tool: Tool) -> None:
    check = jsonschema_rs.validator_for(tool.schema())
    assert tool.schema()["properties"]["action"]["enum"] == [action.name for action in tool.actions]
    assert not check.is_valid({})
    assert not check.is_valid({"action": "no such"})
    for action in tool.actions:
        properties, required = parameters(f"{tool.common} {action.written}")
        given: dict[str, Any] = {name: example(properties[name]) for name in required}
        for name in action.exactly.split()[:1]:
            given[name] = example(properties[name])
        assert check.is_valid({"action": action.name, **given}), action.name
        assert not check.is_valid({"action": action.name, **given, "other": 1})
        for name in required:
            assert not check.is_valid({"action": action.name, **{k: v for k, v in given.items() if k != name}})


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


def test_queries_and_exports_are_readable_and_writers_are_not() -> None:
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


def test_annotations_tell_the_same_as_the_effects() -> None:
    for tool in TOOLS.values():
        hints = tool.definition(gate_open=False)["annotations"]
        if hints["readOnlyHint"]:
            assert tool.effect == 0
            assert not hints["destructiveHint"]
    for name in ("run_project", "stop_project", "launch_editor"):
        assert TOOLS[name].definition(gate_open=False)["annotations"]["readOnlyHint"] is False


def test_every_kind_of_fault_has_one_of_the_seven_codes() -> None:
    assert set(WORDS) == set(Kind)
    assert set(WORDS.values()) == {
        "E_SCHEMA_VALIDATION", "E_NOT_CONNECTED", "E_NOT_FOUND", "E_PERMISSION_DENIED", "E_TIMEOUT", "E_UNSUPPORTED",
        "E_INTERNAL",
    }  # fmt: skip


def test_every_operation_leads_to_a_tool_or_action_that_is_there() -> None:
    for target in OPERATIONS.values():
        name, _, action = target.partition(":")
        tool = TOOLS[name]
        assert (tool.chosen(action) if action else tool).run is not None  # type: ignore[union-attr]


def test_the_output_schema_admits_failures_too() -> None:
    check = jsonschema_rs.validator_for(OUTPUT_SCHEMA)
    meta = {"tool": "x", "action": None, "correlationId": "c", "durationMs": 0}
    error = {"code": "E_INTERNAL", "message": "m", "retryable": False}
    assert check.is_valid({"ok": False, "summary": "m", "result": None, "error": error, "meta": meta})
