"""What a project is, as resources to read: `godot://…?project=NAME`, for the caller's own projects only.

A project is named by its folder below one of the caller's roots. Without a name the only project there is is meant:
nothing is remembered from earlier calls.
"""

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit

from backends.godot.envelope import Outcome
from backends.godot.handlers import assets, exporting, nodes, projects, running, scenes, scripts, settings
from backends.godot.handlers.scripts import TEMPLATES
from backends.godot.paths import Project
from backends.godot.services import Desk
from backends.godot.tool import Job, Run, carry_out
from gateway.contract import Caller, Json
from gateway.errors import Fault, Kind, UnknownName

_JSON: Final = "application/json"
_MIME: Final[Mapping[str, str]] = {
    ".gd": "text/x-gdscript",
    ".tscn": "text/x-godot-scene",
    ".tres": "text/x-godot-resource",
    ".gdshader": "text/x-godot-shader",
}
_TEMPLATE_NAMES: Final = {
    "character-controller": "character_2d",
    "state-machine": "basic_node",
    "singleton-autoload": "basic_node",
}


@dataclass(frozen=True, slots=True)
class View:
    """One pattern of URI: what is in braces becomes the named argument."""

    uri: str
    title: str
    run: Run
    argument: str = ""
    raw: str = ""
    """The detail that is the file's own text; without it the details are answered as JSON."""
    project: bool = True


VIEWS: Final = (
    View("godot://project/info", "Project", projects.info),
    View("godot://project/settings", "Project settings", settings.get),
    View("godot://project/settings/{section}", "Section of settings", settings.get, "section"),
    View("godot://export/presets", "Export presets", exporting.presets),
    View("godot://system/version", "Engine version", projects.version, project=False),
    View("godot://scenes", "Scenes", scenes.listing),
    View("godot://scene/{path}/tree", "Node tree", nodes.tree, "scenePath"),
    View("godot://scene/{path}", "Scene", scenes.read, "scenePath", raw="content"),
    View("godot://scripts", "Scripts", scripts.listing),
    View("godot://script/errors", "Script errors", scripts.check),
    View("godot://script/{path}", "Script", scripts.read, "scriptPath", raw="content"),
    View("godot://assets", "Assets", assets.listing),
    View("godot://assets/{category}", "Assets of a category", assets.listing, "category"),
    View("godot://resources", "Resources", assets.resources),
    View("godot://uid/{path}", "UID", scenes.get_uid, "filePath"),
    View("godot://editor/events", "What editors told", running.events, project=False),
    View("godot://debug/output", "Debug output", running.output, project=False),
    View("godot://debug/stream", "Debug stream", running.stream_read, project=False),
)


def listed() -> list[Json]:
    plain = [view for view in VIEWS if not view.argument]
    shown = [{"uri": view.uri, "name": view.title, "mimeType": _JSON} for view in plain]
    shown += [
        {"uri": f"godot-template://{name}", "name": name, "mimeType": _MIME[".gd"]} for name in sorted(_TEMPLATE_NAMES)
    ]
    return shown


def templates() -> list[Json]:
    """A path is percent-encoded, or written as it is."""
    shown: list[Json] = []
    for view in VIEWS:
        query = "{?project}" if view.project else ""
        if query or view.argument:
            pattern = view.uri.replace("{path}", "{+path}") + query
            shown.append({"uriTemplate": pattern, "name": view.title})
    return shown


async def read(desk: Desk, caller: Caller, uri: str) -> Json:
    if uri.startswith("godot-template://"):
        return _template(uri)
    address, _, query = uri.partition("?")
    view, value = _match(address, uri)
    arguments: Json = {view.argument: value} if view.argument else {}
    if view.argument == "scenePath" and view.raw:
        arguments["maxChars"] = 1_000_000
    project = await asyncio.to_thread(_project, desk, caller, query) if view.project else None
    job = Job("resources/read", None, arguments, caller, desk, _silent, project)
    outcome = await carry_out(view.run, job)
    return {"contents": [_content(uri, view, value, outcome)]}


def _match(address: str, uri: str) -> tuple[View, str]:
    for view in VIEWS:
        pattern = re.sub(r"\\\{\w+\\\}", "(.+)", re.escape(view.uri))
        if (found := re.fullmatch(pattern, address)) is not None:
            return view, unquote(found[1]) if found.groups() else ""
    raise UnknownName(f"There is no resource {uri}.", uri=uri)


def _project(desk: Desk, caller: Caller, query: str) -> Project:
    """By its folder's name below a root of the caller's."""
    wanted = parse_qs(query).get("project", [None])[0]
    roots = desk.roots.of(caller, desk.folder(caller))
    found = sorted(
        path.parent for root in roots for path in root.glob("*/project.godot") if not path.parent.is_symlink()
    )
    named = [path for path in found if wanted in (None, path.name)]
    if len(named) != 1:
        raise Fault(
            Kind.NOT_FOUND,
            "There is no such project." if wanted else "Say which project is meant with ?project=NAME.",
            details={"projects": [path.name for path in found]},
        )
    return Project(named[0].resolve())


def _content(uri: str, view: View, value: str, outcome: Outcome) -> Json:
    if view.raw:
        suffix = "." + value.rpartition(".")[2]
        return {"uri": uri, "mimeType": _MIME.get(suffix, "text/plain"), "text": outcome.details[view.raw]}
    return {"uri": uri, "mimeType": _JSON, "text": json.dumps(outcome.details, ensure_ascii=False)}


def _template(uri: str) -> Json:
    name = urlsplit(uri).netloc
    if name not in _TEMPLATE_NAMES:
        raise UnknownName(f"There is no resource {uri}.", uri=uri)
    text = _TEXTS.get(name) or TEMPLATES[_TEMPLATE_NAMES[name]].format(name="")
    return {"contents": [{"uri": uri, "mimeType": _MIME[".gd"], "text": text}]}


_TEXTS: Final[Mapping[str, str]] = {
    "state-machine": (
        'extends Node\n\nsignal changed(state: StringName)\n\nvar state := &"idle":\n\tset(value):\n'
        "\t\tif value != state:\n\t\t\tstate = value\n\t\t\tchanged.emit(state)\n"
    ),
    "singleton-autoload": "extends Node\n\nvar score := 0\n\n\nfunc reset() -> void:\n\tscore = 0\n",
}


async def _silent(progress: float, total: float | None, message: str) -> None:
    """Nobody asked for progress of a reading."""
