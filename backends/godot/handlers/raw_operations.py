"""Handlers that run operations by name, headless or in an editor, one at a time or in batches."""

import json
from collections.abc import Mapping
from functools import lru_cache
from time import perf_counter
from typing import Any, Final, cast

import jsonschema_rs

from backends.godot.dispatch import request_editor, to_camel_case
from backends.godot.envelope import CODES, Outcome
from backends.godot.tool import Tool, ToolCall, run_handler
from gateway.contract import Json
from gateway.errors import Fault, ForeignError, Kind

# Operation -> tool, or `manager:action`, that executes it.
OPERATIONS: Final[Mapping[str, str]] = {
    "create_scene": "create_scene",
    "add_node": "add_node",
    "edit_node": "edit_node",
    "set_node_properties": "edit_node",
    "remove_node": "remove_node",
    "rename_node": "rename_node",
    "move_node": "move_node",
    "duplicate_node": "duplicate_node",
    "instance_scene": "instance_scene",
    "connect_signal": "connect_signal",
    "attach_script": "attach_script",
    "load_sprite": "load_sprite",
    "save_scene": "save_scene",
    "validate_scene": "get_node_tree",
    "create_resource": "create_resource",
    "export_mesh_library": "export_mesh_library",
    "get_uid": "get_uid",
    "resave_resources": "update_project_uids",
    "update_project_uids": "update_project_uids",
    "get_godot_version": "get_godot_version",
    "delete_script": "delete_script",
    "set_project_setting": "set_project_setting",
    "create_script": "godot_code_manager:script.create",
    "eval_expression": "godot_code_manager:gdscript.eval_restricted",
    "read_text_file": "godot_code_manager:file.read",
    "write_text_file": "godot_code_manager:file.write",
    "doctor_scan_v1": "validate_project",
    "project_config_save_game_data_v1": "godot_project_config_manager:save_game_data",
    "project_config_load_game_data_v1": "godot_project_config_manager:load_game_data",
    "project_config_project_setting_set_v1": "godot_project_config_manager:project_setting.set",
    "project_config_project_setting_get_v1": "godot_project_config_manager:project_setting.get",
    "project_config_input_map_setup_v1": "godot_project_config_manager:input_map.setup",
}
_SINGLETONS: Final = frozenset({"OS", "ProjectSettings", "FileAccess", "DirAccess", "Engine", "ResourceSaver"})
_OBJECT_METHODS: Final = frozenset({"call", "set", "get"})


def _parse_object(value: Any, label: str) -> Json:
    """Return an argument that is an object or JSON text of an object."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as exc:
            raise Fault(Kind.INVALID_INPUT, f"{label} is not JSON.") from exc
    if not isinstance(value, dict):
        raise Fault(Kind.INVALID_INPUT, f"{label} is not an object.")
    return cast("Json", value)


async def run_operation(call: ToolCall) -> Outcome:
    return await _run_named(call, call.text("operation"), _parse_object(call.get("params", {}), "params"))


async def _run_named(call: ToolCall, name: str, params: Json) -> Outcome:
    if name not in OPERATIONS:
        raise Fault(Kind.UNSUPPORTED, f"There is no operation {name!r}.", details={"operations": sorted(OPERATIONS)})
    call.services.check_dangerous(name)
    target, _, action = OPERATIONS[name].partition(":")
    tool = call.services.tools[target]
    arguments: Json = {
        to_camel_case(key): value for key, value in params.items() if to_camel_case(key) != "projectPath"
    }
    if action:
        arguments["action"] = action
    if "projectPath" in _properties(tool):
        arguments["projectPath"] = str(call.project.root)
    _check(tool, arguments)
    chosen = tool.find_action(action) if action else None
    handler = chosen.handler if chosen else tool.handler
    assert handler is not None
    inner_call = ToolCall(
        call.tool, call.action, arguments, call.caller, call.services, call.report_progress, call.optional_project
    )
    return await run_handler(handler, inner_call)


def _properties(tool: Tool) -> Json:
    return tool.schema()["properties"]


def _check(tool: Tool, arguments: Json) -> None:
    error = next(iter(_validator(tool.name, json.dumps(tool.schema())).iter_errors(arguments)), None)
    if error is not None:
        raise Fault(
            Kind.INVALID_INPUT,
            f"The parameters do not match the schema of {tool.name}.",
            details={"validation_path": "/".join(map(str, error.instance_path)), "rule": str(error.kind.name)},
        )


@lru_cache(maxsize=256)
def _validator(name: str, schema: str) -> Any:
    return jsonschema_rs.validator_for(json.loads(schema))


async def run_batch(call: ToolCall) -> Outcome:
    """Run operations in sequence."""
    steps: list[Json] = call.get("steps")
    # Check all steps before the first one runs: a denied batch must not change anything.
    for step in steps:
        call.services.check_dangerous(step["operation"])
    results: list[Json] = []
    for index, step in enumerate(steps):
        try:
            result = await _run_named(call, step["operation"], step.get("params", {}))
            results.append({"operation": step["operation"], "ok": True, "result": result.details})
        except Fault as fault:
            code = fault.code or CODES[fault.kind]
            results.append(
                {"operation": step["operation"], "ok": False, "error": {"code": code, "message": fault.message}}
            )
            if call.get("stopOnError", True):
                break
        await call.report_progress(index + 1, len(steps), step["operation"])
    return _summarize(results, len(steps))


def _summarize(results: list[Json], total: int) -> Outcome:
    failed = [each for each in results if not each["ok"]]
    details: Json = {"total": total, "done": len(results), "failed": len(failed), "results": results}
    if failed and len(failed) == len(results):
        raise Fault(Kind.INVALID_INPUT, failed[0]["error"]["message"], code=failed[0]["error"]["code"], details=details)
    return Outcome(f"{len(results) - len(failed)} of {total} steps succeeded.", details)


async def run_tools(call: ToolCall) -> Outcome:
    """Call tools in sequence. Each call passes through the whole gateway like a separate call."""
    operations: list[Json] = call.get("operations")
    limit = int(call.get("maxOperations", 100))
    if len(operations) > limit:
        raise Fault(Kind.INVALID_INPUT, f"There are more than {limit} operations.")
    if any(each["tool"].endswith("batch_operations") for each in operations):
        raise Fault(Kind.INVALID_INPUT, "A batch cannot contain another batch.")
    results: list[Json] = []
    for index, each in enumerate(operations):
        results.append({"index": index, "tool": each["tool"], "id": each.get("id"), **await _invoke_tool(call, each)})
        await call.report_progress(index + 1, len(operations), each["tool"])
        if not results[-1]["success"] and call.get("stopOnError", True):
            break
    succeeded = sum(each["success"] for each in results)
    details: Json = {
        "totalOperations": len(operations),
        "successCount": succeeded,
        "failureCount": len(results) - succeeded,
        "stoppedEarly": len(results) < len(operations),
        "results": results,
    }
    summary = f"{succeeded} of {len(operations)} operations succeeded."
    if failed := next((each for each in results if not each["success"]), None):
        raise Fault(Kind.INTERNAL, summary, code=failed["error"]["code"], details=details, retryable=False)
    return Outcome(summary, details)


async def _invoke_tool(call: ToolCall, operation: Json) -> Json:
    started = perf_counter()
    tool = call.services.tools.get(operation["tool"])
    arguments: Json = dict(operation["args"])
    if tool is not None and "projectPath" in _properties(tool):
        arguments["projectPath"] = str(call.project.root)
    services = call.services
    try:
        if tool is None:
            raise Fault(Kind.UNSUPPORTED, f"There is no tool {operation['tool']!r}.")
        local_name = tool.name.removeprefix(f"{services.host.namespace}_")
        result = await services.host.invoke(call.caller, f"{services.host.namespace}.{local_name}", arguments, {})
    except Fault as fault:
        error = {"code": fault.code or CODES[fault.kind], "message": fault.message}
        return {"success": False, "error": error, "durationMs": _elapsed_ms(started)}
    except ForeignError as foreign:
        error = {"code": CODES[Kind.INTERNAL], "message": foreign.message}
        return {"success": False, "error": error, "durationMs": _elapsed_ms(started)}
    envelope: Json = result.get("structuredContent") or {}
    if not envelope.get("ok"):
        error = envelope.get("error") or {"code": CODES[Kind.INTERNAL], "message": "The tool failed."}
        shown = {"code": error["code"], "message": error["message"]}
        return {"success": False, "error": shown, "durationMs": _elapsed_ms(started)}
    return {"success": True, "result": envelope.get("result"), "durationMs": _elapsed_ms(started)}


def _elapsed_ms(started: float) -> int:
    return round((perf_counter() - started) * 1000)


# ---- editor methods -----------------------------------------------------------------------------------------------


async def rpc(call: ToolCall) -> Outcome:
    request = _parse_object(call.get("request_json"), "request_json")
    return await request_editor(call, *_check_request(call, request))


async def inspect(call: ToolCall) -> Outcome:
    return await request_editor(call, "inspect", _parse_object(call.get("query_json"), "query_json"))


async def editor_batch(call: ToolCall) -> Outcome:
    """Run several editor methods as one undo step. The editor rolls all of them back when one fails."""
    steps = [dict(zip(("method", "params"), _check_request(call, step), strict=True)) for step in call.get("steps")]
    params: Json = {"steps": steps, "stop_on_error": call.get("stopOnError", True)}
    return await request_editor(call, "batch", {**params, "action_name": call.text("actionName", "Batch")})


def _check_request(call: ToolCall, request: Json) -> tuple[str, Json]:
    method, params = request.get("method"), request.get("params", {})
    if not isinstance(method, str) or not method or not isinstance(params, dict):
        raise Fault(Kind.INVALID_INPUT, "A request must be an object {method, params}.")
    params = cast("Json", params)
    words = {str(value) for value in params.values() if isinstance(value, str)}
    call.services.check_dangerous(method, known_dangerous=method in _OBJECT_METHODS and bool(words & _SINGLETONS))
    for name, value in params.items():
        if isinstance(value, str) and value.startswith(("user://", "/", "file://")) and "node" not in name:
            raise Fault(Kind.DENIED, f"{name} leaves the project.")
    return method, params
