"""Running a project or its editor, and what it says."""

import asyncio
import glob
import re
from typing import Final

from backends.godot import files
from backends.godot.engine.process import finish
from backends.godot.envelope import Outcome
from backends.godot.paths import Place
from backends.godot.project_runs import Run
from backends.godot.tool import Job
from gateway.contract import Json
from gateway.errors import Fault, Kind

GAME: Final = "game"
EDITOR: Final = "editor"
_FILM_FPS: Final = 30
_FILM_SECONDS: Final = 50.0
_EARLY: Final = 0.5
"""A project that cannot start says so within this time."""


async def start(job: Job) -> Outcome:
    arguments: list[str] = ["--path", str(job.project.root)]
    if job.get("scene"):
        scene = job.place("scene")
        if not scene.path.is_file():
            raise Fault(Kind.NOT_FOUND, f"There is no scene {scene.res}.")
        arguments.append(scene.res)
    command = job.desk.engine.command(*arguments, headless=not job.desk.options.windowed)
    run = await _started(job, GAME, command, network=job.desk.options.game_network)
    if await run.ended(_EARLY) and run.failed:
        raise Fault(Kind.INTERNAL, "The project ended at once.", details=run.shown())
    return Outcome("The project runs.", {"running": run.running, "projectPath": str(job.project.root)})


async def _started(job: Job, kind: str, command: list[str], *, network: bool) -> Run:
    walls = job.desk.engine.walls
    home = job.desk.engine_home(job.caller)
    given = (job.caller, job.project, kind, command, home)
    return await job.desk.runs.start(*given, walls.with_network() if network else walls)


async def stop(job: Job) -> Outcome:
    stopped = await job.desk.runs.stop(job.caller, GAME, job.given)
    if not stopped:
        raise Fault(Kind.NOT_FOUND, "No project of yours runs.", suggested_fix="Start one with run_project.")
    return Outcome(f"Stopped {len(stopped)}.", {"stopped": [run.shown() for run in stopped]})


async def launch_editor(job: Job) -> Outcome:
    windowed = job.desk.options.windowed
    command = job.desk.engine.command("--editor", "--path", str(job.project.root), headless=not windowed)
    # An editor connects out to the gateway.
    run = await _started(job, EDITOR, command, network=True)
    if await run.ended(_EARLY) and run.failed:
        raise Fault(Kind.INTERNAL, "The editor ended at once.", details=run.shown())
    return Outcome("The editor starts.", {"headless": not windowed, "running": run.running})


async def restart(job: Job) -> Outcome:
    await job.desk.runs.stop(job.caller, EDITOR, job.project)
    return await launch_editor(job)


async def smoke_test(job: Job) -> Outcome:
    """Run for a while and look for errors."""
    await start(job)
    run = job.desk.runs.latest(job.caller, job.project)
    assert run is not None
    ended = await run.ended(min(float(job.get("waitMs", 2000)), 60_000) / 1000)
    await run.stop()
    details: Json = {**run.shown(), "endedByItself": ended}
    if run.failed and job.get("failOnIssues", True):
        raise Fault(Kind.INTERNAL, f"The project reported {len(run.failed)} errors.", details=details)
    return Outcome(f"It ran with {len(run.failed)} errors.", details)


def output(job: Job) -> Outcome:
    run = job.desk.runs.latest(job.caller, job.given)
    if run is None:
        return Outcome("Nothing has run yet.", {"running": False, "output": [], "errors": [], "cursor": 0})
    shown = run.shown()
    return Outcome(f"{len(shown['output'])} lines, {len(shown['errors'])} problems.", shown)


def events(job: Job) -> Outcome:
    told = job.desk.events.latest(job.caller)
    return Outcome(f"{len(told)} events.", {"events": told})


def poll(job: Job) -> Outcome:
    """What is new since the cursor, errors only unless asked for all."""
    run = job.desk.runs.latest(job.caller, job.given)
    if run is None:
        return Outcome("Nothing has run yet.", {"lines": [], "errors": [], "cursor": 0})
    shown = run.shown(int(job.get("cursor", 0)))
    lines: list[str] = shown["output"]
    if job.get("pattern"):
        try:
            wanted = re.compile(re.escape(job.text("pattern")), re.I)
        except re.error as exc:
            raise Fault(Kind.INVALID_INPUT, "pattern cannot be searched for.") from exc
        lines = [line for line in lines if wanted.search(line)]
    if job.get("onlyErrors", job.action == "poll"):
        lines = [line for line in lines if "ERROR" in line]
    most = int(job.get("maxMatches", 50))
    errors = shown["errors"][-most:]
    return Outcome(f"{len(lines)} lines.", {"lines": lines[-most:], "errors": errors, "cursor": shown["cursor"]})


def clear(job: Job) -> Outcome:
    run = job.desk.runs.latest(job.caller, job.given)
    if run is not None:
        run.lines.clear()
    return Outcome("Forgot what was said so far.", {"cursor": run.seen if run else 0})


async def stream_on(job: Job) -> Outcome:
    if job.get("port") is not None:
        raise Fault(
            Kind.UNSUPPORTED,
            "The debug stream has no port of its own: anybody on this machine could listen to it.",
            suggested_fix="Leave port out and read godot://debug/stream.",
        )
    job.desk.runs.stream(job.caller, on=True)
    return Outcome("The debug stream is on.", {"active": True, "uri": "godot://debug/stream"})


async def stream_off(job: Job) -> Outcome:
    if job.desk.runs.streaming(job.caller) is None:
        raise Fault(Kind.NOT_FOUND, "The debug stream is not on.")
    job.desk.runs.stream(job.caller, on=False)
    return Outcome("The debug stream is off.", {"active": False})


async def stream_status(job: Job) -> Outcome:
    since = job.desk.runs.streaming(job.caller)
    run = job.desk.runs.latest(job.caller)
    waiting = run.seen - since if run is not None and since is not None else 0
    return Outcome(
        "The debug stream is on." if since is not None else "The debug stream is off.",
        {"active": since is not None, "waitingLines": max(waiting, 0)},
    )


async def stream_read(job: Job) -> Outcome:
    """What was said since it was read last, while the stream is on."""
    runs = job.desk.runs
    since, run = runs.streaming(job.caller), runs.latest(job.caller)
    if since is None:
        return Outcome("The debug stream is off.", {"active": False, "output": []})
    if run is None:
        return Outcome("Nothing has run yet.", {"active": True, "output": []})
    runs.stream(job.caller, on=True)
    return Outcome("What is new.", {"active": True, **run.shown(since)})


async def status(job: Job) -> Outcome:
    desk = job.desk
    runs = [
        {"projectPath": str(run.project.root), "kind": run.kind, "running": run.running}
        for run in desk.runs.all(job.caller)
    ]
    editors = desk.editors.connected(job.caller)
    details: Json = {"editors": editors, "runs": runs, "engine": await asyncio.to_thread(lambda: desk.engine.present)}
    return Outcome(f"{len(editors)} editors connected, {len(runs)} runs.", details)


async def connect(job: Job) -> Outcome:
    peer = job.desk.editors.of(job.caller, job.project)
    if peer is None:
        raise Fault(Kind.UNAVAILABLE, "No editor has this project open.")
    return Outcome("An editor is connected.", {"editor": peer})


async def picture(job: Job) -> Outcome:
    """The last frame of a short film of the scene; nothing draws on a machine without a screen."""
    if not job.desk.options.windowed:
        raise Fault(
            Kind.UNSUPPORTED,
            "There is nothing to take a picture of: the engine runs without a screen.",
            suggested_fix="Use get_node_tree to see what a scene holds.",
        )
    place = job.place("outputPath", "screenshots/screenshot.png")
    if place.path.suffix != ".png":
        raise Fault(Kind.INVALID_INPUT, "outputPath must end in .png.")
    await asyncio.to_thread(files.make_folder, Place(place.root, place.path.parent))
    frames = max(int(float(job.get("delay", 0.5)) * _FILM_FPS), 1)
    film = ("--write-movie", str(place.path), "--fixed-fps", str(_FILM_FPS), "--quit-after", str(frames))
    scene = (job.scene().res,) if job.get("scenePath") else ()
    command = job.desk.engine.command("--path", str(job.project.root), *film, *scene, headless=False)
    home, walls = job.desk.engine_home(job.caller), job.desk.engine.walls
    await finish(command, job.project.root, home, _FILM_SECONDS, walls, windowed=True)
    taken = sorted(place.path.parent.glob(f"{glob.escape(place.path.stem)}[0-9]*.png"))
    if not taken:
        raise Fault(Kind.INTERNAL, "The engine took no picture.")
    taken[-1].replace(place.path)
    for frame in taken[:-1]:
        frame.unlink()
    return Outcome(f"Took {place.res}.", {"outputPath": place.res}, files=(place.described("image"),))
