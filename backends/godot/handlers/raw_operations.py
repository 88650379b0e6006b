"""The plain doors: any operation by name, headless or in an editor, one or many at a time."""

import json
from collections.abc import Mapping
from functools import lru_cache
from time import perf_counter
from typing import Any, Final, cast

import jsonschema_rs

from backends.godot.dispatch import ask_editor, camel
from backends.godot.envelope import WORDS, Outcome
from backends.godot.tool import Job, Tool, carry_out
from gateway.contract import Json
from gateway.errors import Fault, ForeignError, Kind

# Operation -> the tool, and for a manager its action, that does it.
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
_REACHING: Final = frozenset({"call", "set", "get"})


def _object(value: Any, what: str) -> Json:
    """Given as an object, or as JSON text."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as exc:
            raise Fault(Kind.INVALID_INPUT, f"{what} is not JSON.") from exc
    if not isinstance(value, dict):
        raise Fault(Kind.INVALID_INPUT, f"{what} is not an object.")
    return cast("Json", value)


async def operation(job: Job) -> Outcome:
    return await _operate(job, job.text("operation"), _object(job.get("params", {}), "params"))


async def _operate(job: Job, name: str, params: Json) -> Outcome:
    if name not in OPERATIONS:
        raise Fault(Kind.UNSUPPORTED, f"There is no operation {name!r}.", details={"operations": sorted(OPERATIONS)})
    job.desk.permit_danger(name)
    target, _, action = OPERATIONS[name].partition(":")
    tool = job.desk.tools[target]
    arguments: Json = {camel(key): value for key, value in params.items() if camel(key) != "projectPath"}
    if action:
        arguments["action"] = action
    if "projectPath" in _properties(tool):
        arguments["projectPath"] = str(job.project.root)
    _check(tool, arguments)
    chosen = tool.chosen(action) if action else None
    run = chosen.run if chosen else tool.run
    assert run is not None
    inner = Job(job.tool, job.action, arguments, job.caller, job.desk, job.report, job.given)
    return await carry_out(run, inner)


def _properties(tool: Tool) -> Json:
    return tool.schema()["properties"]


def _check(tool: Tool, arguments: Json) -> None:
    error = next(iter(_validator(tool.name, json.dumps(tool.schema())).iter_errors(arguments)), None)
    if error is not None:
        raise Fault(
            Kind.INVALID_INPUT,
            f"These are not the parameters of {tool.name}.",
            details={"validation_path": "/".join(map(str, error.instance_path)), "rule": str(error.kind.name)},
        )


@lru_cache(maxsize=256)
def _validator(name: str, schema: str) -> Any:
    return jsonschema_rs.validator_for(json.loads(schema))


async def batch(job: Job) -> Outcome:
    """Operations one after the other."""
    steps: list[Json] = job.get("steps")
    # Before the first of them runs: a batch that is not allowed changes nothing.
    for step in steps:
        job.desk.permit_danger(step["operation"])
    results: list[Json] = []
    for index, step in enumerate(steps):
        try:
            done = await _operate(job, step["operation"], step.get("params", {}))
            results.append({"operation": step["operation"], "ok": True, "result": done.details})
        except Fault as fault:
            code = fault.code or WORDS[fault.kind]
            results.append(
                {"operation": step["operation"], "ok": False, "error": {"code": code, "message": fault.message}}
            )
            if job.get("stopOnError", True):
                break
        await job.report(index + 1, len(steps), step["operation"])
    return _tally(results, len(steps))


def _tally(results: list[Json], asked: int) -> Outcome:
    failed = [each for each in results if not each["ok"]]
    details: Json = {"total": asked, "done": len(results), "failed": len(failed), "results": results}
    if failed and len(failed) == len(results):
        raise Fault(Kind.INVALID_INPUT, failed[0]["error"]["message"], code=failed[0]["error"]["code"], details=details)
    return Outcome(f"{len(results) - len(failed)} of {asked} steps done.", details)


async def batch_tools(job: Job) -> Outcome:
    """Each through the whole path of the gateway, as if called by itself."""
    operations: list[Json] = job.get("operations")
    most = int(job.get("maxOperations", 100))
    if len(operations) > most:
        raise Fault(Kind.INVALID_INPUT, f"There are more than {most} operations.")
    if any(each["tool"].endswith("batch_operations") for each in operations):
        raise Fault(Kind.INVALID_INPUT, "A batch cannot hold a batch.")
    results: list[Json] = []
    for index, each in enumerate(operations):
        results.append({"index": index, "tool": each["tool"], "id": each.get("id"), **await _call(job, each)})
        await job.report(index + 1, len(operations), each["tool"])
        if not results[-1]["success"] and job.get("stopOnError", True):
            break
    succeeded = sum(each["success"] for each in results)
    details: Json = {
        "totalOperations": len(operations),
        "successCount": succeeded,
        "failureCount": len(results) - succeeded,
        "stoppedEarly": len(results) < len(operations),
        "results": results,
    }
    return Outcome(f"{succeeded} of {len(operations)} operations done.", details)


async def _call(job: Job, operation: Json) -> Json:
    started = perf_counter()
    tool = job.desk.tools.get(operation["tool"])
    arguments: Json = dict(operation["args"])
    if tool is not None and "projectPath" in _properties(tool):
        arguments["projectPath"] = str(job.project.root)
    desk = job.desk
    try:
        if tool is None:
            raise Fault(Kind.UNSUPPORTED, f"There is no tool {operation['tool']!r}.")
        own = tool.name.removeprefix(f"{desk.home.namespace}_")
        result = await desk.home.invoke(job.caller, f"{desk.home.namespace}.{own}", arguments, {})
    except Fault as fault:
        error = {"code": fault.code or WORDS[fault.kind], "message": fault.message}
        return {"success": False, "error": error, "durationMs": _since(started)}
    except ForeignError as foreign:
        error = {"code": WORDS[Kind.INTERNAL], "message": foreign.message}
        return {"success": False, "error": error, "durationMs": _since(started)}
    envelope: Json = result.get("structuredContent") or {}
    return {"success": bool(envelope.get("ok")), "result": envelope.get("result"), "durationMs": _since(started)}


def _since(started: float) -> int:
    return round((perf_counter() - started) * 1000)


# ---- the editor's own methods -------------------------------------------------------------------------------------


async def rpc(job: Job) -> Outcome:
    asked = _object(job.get("request_json"), "request_json")
    return await ask_editor(job, *_permitted(job, asked))


async def inspect(job: Job) -> Outcome:
    return await ask_editor(job, "inspect", _object(job.get("query_json"), "query_json"))


async def editor_batch(job: Job) -> Outcome:
    """One undo for all of them; the editor takes back what was done when one fails."""
    steps = [dict(zip(("method", "params"), _permitted(job, step), strict=True)) for step in job.get("steps")]
    params: Json = {"steps": steps, "stop_on_error": job.get("stopOnError", True)}
    return await ask_editor(job, "batch", {**params, "action_name": job.text("actionName", "Batch")})


def _permitted(job: Job, asked: Json) -> tuple[str, Json]:
    method, params = asked.get("method"), asked.get("params", {})
    if not isinstance(method, str) or not method or not isinstance(params, dict):
        raise Fault(Kind.INVALID_INPUT, "A request is {method, params}.")
    params = cast("Json", params)
    words = {str(value) for value in params.values() if isinstance(value, str)}
    job.desk.permit_danger(method, certain=method in _REACHING and bool(words & _SINGLETONS))
    for name, value in params.items():
        if isinstance(value, str) and value.startswith(("user://", "/", "file://")) and "node" not in name:
            raise Fault(Kind.DENIED, f"{name} leaves the project.")
    return method, params
