"""Shared steps of edits of resource files: the engine changes the resource, the file is edited by span."""

import asyncio
from typing import Any

from backends.godot import files
from backends.godot.envelope import Outcome
from backends.godot.handlers.scene_editing import check_format, prepare_arguments
from backends.godot.paths import ProjectPath
from backends.godot.text.merge import merge_resource
from backends.godot.text.scene import Scene
from backends.godot.tool import ToolCall
from gateway.contract import Json
from gateway.errors import Fault, Kind


async def change_resource(
    call: ToolCall,
    location: ProjectPath,
    kind: str,
    *,
    operation: str = "set",
    args: Json,
    summary: str,
    create_only: bool = False,
    details: Json | None = None,
) -> Outcome:
    """Change a `.tres` file by an operation of the engine, or create it as a resource of class `kind`."""
    if location.path.suffix != ".tres":
        raise Fault(Kind.INVALID_INPUT, f"{location.res} must end in .tres: resources are written in text form.")
    exists = files.exists(location)
    if exists and create_only:
        raise files.already_exists(location)
    before = Scene(await asyncio.to_thread(files.read_text, location)) if exists else None
    if before is not None:
        check_format(before, location)
    params: Json = {
        "resource": location.res if exists else "",
        "class": kind,
        "operation": operation,
        "args": prepare_arguments(call, args),
    }
    answer = (await call.services.run_operation(call.caller, call.project, "author", params)).value
    text = answer["text"] if before is None else merge_resource(before, Scene(answer["text"])).text
    size = await asyncio.to_thread(files.write_text, location, text)
    try:
        await call.services.run_operation(call.caller, call.project, "load_resource", {"path": location.res})
    except (Fault, asyncio.CancelledError):
        if before is None:
            files.delete(location)
        else:
            files.write_text(location, before.text)
        raise
    shown: dict[str, Any] = {"resourcePath": location.res, "resourceType": kind, **(details or {}), **answer["result"]}
    return Outcome(
        summary,
        shown,
        files=(location.describe("resource", size),),
        execution={"executor": "headless"},
    )
