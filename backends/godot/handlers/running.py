"""Handlers that run a project or its editor and return its output and events."""

import asyncio
import re
from typing import Final

from backends.godot.envelope import Outcome
from backends.godot.project_runs import ProjectRun
from backends.godot.tool import ToolCall
from gateway.contract import Json
from gateway.errors import Fault, Kind

GAME: Final = "game"
EDITOR: Final = "editor"
_EARLY_EXIT_SECONDS: Final = 0.5
"""A project that cannot start exits with an error within this time."""


async def start(call: ToolCall) -> Outcome:
    arguments: list[str] = ["--path", str(call.project.root)]
    if call.get("scene"):
        scene = call.resolve_path("scene")
        if not scene.path.is_file():
            raise Fault(Kind.NOT_FOUND, f"There is no scene {scene.res}.")
        arguments.append(scene.res)
    command = call.services.engine.command(*arguments, headless=not call.services.options.windowed)
    run = await _launch(call, GAME, command, network=call.services.options.game_network)
    if await run.wait_for_exit(_EARLY_EXIT_SECONDS) and run.error_messages:
        raise Fault(Kind.INTERNAL, "The project exited immediately.", details=run.as_json())
    return Outcome("The project is running.", {"running": run.is_running, "projectPath": str(call.project.root)})


async def _launch(call: ToolCall, kind: str, command: list[str], *, network: bool) -> ProjectRun:
    sandbox = call.services.engine.sandbox
    home = call.services.engine_home(call.caller)
    sandbox = sandbox.with_network() if network else sandbox
    return await call.services.runs.start(call.caller, call.project, kind, command, home, sandbox)


async def stop(call: ToolCall) -> Outcome:
    stopped = await call.services.runs.stop(call.caller, GAME, call.optional_project)
    if not stopped:
        raise Fault(Kind.NOT_FOUND, "None of your projects is running.", suggested_fix="Start one with run_project.")
    return Outcome(f"Stopped {len(stopped)} projects.", {"stopped": [run.as_json() for run in stopped]})


async def launch_editor(call: ToolCall) -> Outcome:
    windowed = call.services.options.windowed
    command = call.services.engine.command("--editor", "--path", str(call.project.root), headless=not windowed)
    # The editor needs the network to connect to the gateway.
    run = await _launch(call, EDITOR, command, network=True)
    if await run.wait_for_exit(_EARLY_EXIT_SECONDS) and run.error_messages:
        raise Fault(Kind.INTERNAL, "The editor exited immediately.", details=run.as_json())
    return Outcome("The editor is starting.", {"headless": not windowed, "running": run.is_running})


async def restart(call: ToolCall) -> Outcome:
    await call.services.runs.stop(call.caller, EDITOR, call.project)
    return await launch_editor(call)


async def smoke_test(call: ToolCall) -> Outcome:
    """Run the project for a limited time and report its errors."""
    await start(call)
    run = call.services.runs.latest(call.caller, call.project)
    assert run is not None
    ended = await run.wait_for_exit(min(float(call.get("waitMs", 2000)), 60_000) / 1000)
    await run.stop()
    details: Json = {**run.as_json(), "endedByItself": ended}
    if run.error_messages and call.get("failOnIssues", True):
        raise Fault(Kind.INTERNAL, f"The project reported {len(run.error_messages)} errors.", details=details)
    return Outcome(f"The project ran with {len(run.error_messages)} errors.", details)


def get_output(call: ToolCall) -> Outcome:
    run = call.services.runs.latest(call.caller, call.optional_project)
    if run is None:
        return Outcome("Nothing has run yet.", {"running": False, "output": [], "errors": [], "cursor": 0})
    shown = run.as_json()
    return Outcome(f"{len(shown['output'])} lines, {len(shown['errors'])} errors.", shown)


def get_events(call: ToolCall) -> Outcome:
    events = call.services.events.latest(call.caller)
    return Outcome(f"{len(events)} events.", {"events": events})


def poll_output(call: ToolCall) -> Outcome:
    """Return output since the cursor; the action `poll` returns only errors by default."""
    run = call.services.runs.latest(call.caller, call.optional_project)
    if run is None:
        return Outcome("Nothing has run yet.", {"lines": [], "errors": [], "cursor": 0})
    shown = run.as_json(int(call.get("cursor", 0)))
    lines: list[str] = shown["output"]
    if call.get("pattern"):
        try:
            wanted = re.compile(re.escape(call.text("pattern")), re.I)
        except re.error as exc:
            raise Fault(Kind.INVALID_INPUT, "pattern is not valid.") from exc
        lines = [line for line in lines if wanted.search(line)]
    if call.get("onlyErrors", call.action == "poll"):
        lines = [line for line in lines if "ERROR" in line]
    limit = int(call.get("maxMatches", 50))
    errors = shown["errors"][-limit:]
    return Outcome(f"{len(lines)} lines.", {"lines": lines[-limit:], "errors": errors, "cursor": shown["cursor"]})


def clear_output(call: ToolCall) -> Outcome:
    run = call.services.runs.latest(call.caller, call.optional_project)
    if run is not None:
        run.lines.clear()
    return Outcome("Cleared the buffered output.", {"cursor": run.line_count if run else 0})


async def start_stream(call: ToolCall) -> Outcome:
    if call.get("port") is not None:
        raise Fault(
            Kind.UNSUPPORTED,
            "The debug stream does not use a port: any process on this machine could read it.",
            suggested_fix="Omit port and read godot://debug/stream.",
        )
    call.services.runs.set_streaming(call.caller, on=True)
    return Outcome("The debug stream is on.", {"active": True, "uri": "godot://debug/stream"})


async def stop_stream(call: ToolCall) -> Outcome:
    if call.services.runs.stream_position(call.caller) is None:
        raise Fault(Kind.NOT_FOUND, "The debug stream is not on.")
    call.services.runs.set_streaming(call.caller, on=False)
    return Outcome("The debug stream is off.", {"active": False})


async def stream_status(call: ToolCall) -> Outcome:
    position = call.services.runs.stream_position(call.caller)
    run = call.services.runs.latest(call.caller)
    buffered = run.line_count - position if run is not None and position is not None else 0
    return Outcome(
        "The debug stream is on." if position is not None else "The debug stream is off.",
        {"active": position is not None, "waitingLines": max(buffered, 0)},
    )


async def read_stream(call: ToolCall) -> Outcome:
    """Return the output since the last read while the stream is on."""
    runs = call.services.runs
    position, run = runs.stream_position(call.caller), runs.latest(call.caller)
    if position is None:
        return Outcome("The debug stream is off.", {"active": False, "output": []})
    if run is None:
        return Outcome("Nothing has run yet.", {"active": True, "output": []})
    runs.set_streaming(call.caller, on=True)
    return Outcome("New output.", {"active": True, **run.as_json(position)})


async def status(call: ToolCall) -> Outcome:
    services = call.services
    runs = [
        {"projectPath": str(run.project.root), "kind": run.kind, "running": run.is_running}
        for run in services.runs.all(call.caller)
    ]
    editors = services.editors.connected(call.caller)
    details: Json = {
        "editors": editors,
        "runs": runs,
        "engine": await asyncio.to_thread(lambda: services.engine.is_available),
    }
    return Outcome(f"{len(editors)} editors connected, {len(runs)} runs.", details)


async def connect(call: ToolCall) -> Outcome:
    peer = call.services.editors.find(call.caller, call.project)
    if peer is None:
        raise Fault(Kind.UNAVAILABLE, "No editor has this project open.")
    return Outcome("An editor is connected.", {"editor": peer})
