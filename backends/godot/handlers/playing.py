"""Handlers that play a game: run frames, send input, wait, look and take pictures."""

import asyncio
import base64
from typing import Any, Final

from backends.godot import files
from backends.godot.envelope import Outcome
from backends.godot.games import FRAMES_PER_SECOND, Game
from backends.godot.handlers.scene_editing import prepare_arguments
from backends.godot.handlers.settings import settings_path
from backends.godot.text import settings
from backends.godot.text.literal import from_literal
from backends.godot.tool import ToolCall
from gateway.contract import Json
from gateway.errors import Fault, Kind

_CALL_SECONDS: Final = 30.0
_SECONDS_PER_FRAME: Final = 0.25
"""Wall-clock time that a frame may take in software rendering."""


def _scene(call: ToolCall, name: str) -> str:
    if call.get(name):
        location = call.resolve_path(name)
        if not files.exists(location):
            raise Fault(Kind.NOT_FOUND, f"There is no scene {location.res}.")
        return location.res
    text = files.read_text(settings_path(call.project))
    main = settings.values(text).get("application", {}).get("run/main_scene")
    if not main:
        raise Fault(Kind.INVALID_INPUT, "The project has no main scene: pass one, or set application/run/main_scene.")
    return str(main)


async def start(call: ToolCall) -> Outcome:
    home, scene = call.services.engine_home(call.caller), _scene(call, "scene")
    game = await call.services.games.start(call.caller, call.project, home, scene, call.get("resolution"))
    return Outcome(f"{scene} is running and waits.", {"scene": scene, **game.messages()})


def _game(call: ToolCall) -> Game:
    return call.services.games.get(call.caller, call.project)


async def stop(call: ToolCall) -> Outcome:
    game = _game(call)
    shown = game.messages()
    await call.services.games.stop(call.caller, call.project)
    return Outcome("The game is stopped.", shown)


async def run(call: ToolCall) -> Outcome:
    """Advance the game by frames or seconds, or until a condition holds."""
    game = _game(call)
    frames = int(call.get("frames") or float(call.get("seconds", 0)) * FRAMES_PER_SECOND) or 1
    request: Json = {"do": "run", "frames": frames}
    if call.get("until"):
        request["until"] = call.get("until")
    if call.get("stripEvery"):
        request |= {"strip": call.get("stripEvery"), "maxSize": call.get("maxSize", 320)}
    result = await game.request(_CALL_SECONDS + frames * _SECONDS_PER_FRAME, **request)
    pictures = tuple(result.pop("pictures", ()))
    details: Json = {**result, "errors": game.messages()["errors"]}
    if call.get("until") and not result["met"]:
        raise Fault(
            Kind.TIMEOUT,
            f"The condition did not hold within {result['frames']} frames.",
            details=details,
            retryable=False,
        )
    return Outcome(f"The game ran {result['frames']} frames.", details, images=pictures)


async def send_input(call: ToolCall) -> Outcome:
    result = await _game(call).request(_CALL_SECONDS, do="input", events=call.get("events"))
    return Outcome(f"Sent {result['sent']} events.", result)


async def live_tree(call: ToolCall) -> Outcome:
    names = ("nodePath", "maxDepth", "maxNodes")
    request = {name: call.get(name) for name in names if call.get(name) is not None}
    return Outcome("The nodes of the running game.", await _game(call).request(_CALL_SECONDS, do="tree", **request))


async def get_live(call: ToolCall) -> Outcome:
    request = {"nodePath": call.text("nodePath", "."), "property": call.text("property")}
    return _value(call.text("property"), await _game(call).request(_CALL_SECONDS, do="get", **request))


async def set_live(call: ToolCall) -> Outcome:
    value = prepare_arguments(call, {"value": call.arguments.get("value")})["value"]
    request = {"nodePath": call.text("nodePath", "."), "property": call.text("property"), "value": value}
    return _value(call.text("property"), await _game(call).request(_CALL_SECONDS, do="set", **request))


async def call_live(call: ToolCall) -> Outcome:
    request = {"nodePath": call.text("nodePath", "."), "method": call.text("method"), "args": call.get("args", [])}
    return _value(call.text("method"), await _game(call).request(_CALL_SECONDS, do="call", **request))


async def evaluate(call: ToolCall) -> Outcome:
    call.services.check_dangerous("game.evaluate", known_dangerous=True)
    request = {"nodePath": call.text("nodePath", "."), "expression": call.text("expression")}
    return _value("The expression", await _game(call).request(_CALL_SECONDS, do="evaluate", **request))


def _value(name: str, result: Json) -> Outcome:
    literal = str(result["literal"])
    value: Any = from_literal(literal)
    return Outcome(f"{name}: {literal[:200]}", {"value": value, "literal": literal})


async def performance(call: ToolCall) -> Outcome:
    return Outcome("Counters of the running game.", await _game(call).request(_CALL_SECONDS, do="performance"))


async def picture(call: ToolCall) -> Outcome:
    """Take a picture of the running game."""
    data = await _picture(_game(call), int(call.get("maxSize", 1280)))
    return await _shown(call, data, call.get("outputPath"))


async def take_screenshot(call: ToolCall) -> Outcome:
    """Run a scene on a virtual display for a moment and take a picture of it."""
    location = call.resolve_path("outputPath", "screenshots/screenshot.png")
    if location.path.suffix != ".png":
        raise Fault(Kind.INVALID_INPUT, "outputPath must end in .png.")
    services = call.services
    game = await services.games.open(call.project, services.engine_home(call.caller), _scene(call, "scenePath"))
    try:
        frames = max(int(float(call.get("delay", 0.5)) * FRAMES_PER_SECOND), 1)
        await game.request(_CALL_SECONDS + frames * _SECONDS_PER_FRAME, do="run", frames=frames)
        data = await _picture(game, int(call.get("maxSize", 1280)))
    finally:
        await game.close()
    return await _shown(call, data, location.res)


async def _picture(game: Game, bound: int) -> str:
    data = str((await game.request(_CALL_SECONDS, do="picture", maxSize=bound))["picture"])
    if not data:
        raise Fault(Kind.INTERNAL, "The engine rendered no picture.")
    return data


async def _shown(call: ToolCall, data: str, path: str | None) -> Outcome:
    if path is None:
        return Outcome("A picture of the running game.", {}, images=(data,))
    location = call.project.resolve(path, "outputPath")
    if location.path.suffix != ".png":
        raise Fault(Kind.INVALID_INPUT, "outputPath must end in .png.")
    size = await asyncio.to_thread(files.write, location, base64.b64decode(data))
    return Outcome(
        f"Saved the picture as {location.res}.",
        {"outputPath": location.res},
        files=(location.describe("image", size),),
        images=(data,),
    )
