"""MCP resources `godot://…?project=NAME` and `godot-template://…` for the caller's own projects.

NAME is the project's folder name below one of the caller's roots. It may be omitted when there is only one project.
The server keeps no current project between requests.
"""

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit

from backends.godot.envelope import Outcome
from backends.godot.handlers import assets, exporting, inspection, projects, running, scenes, scripts, settings
from backends.godot.handlers.scripts import TEMPLATES
from backends.godot.paths import Project
from backends.godot.services import Services
from backends.godot.tool import Handler, ToolCall, run_handler
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
class ProjectResource:
    """One resource or resource template. The value in braces is passed to the handler as `argument`."""

    uri: str
    title: str
    handler: Handler
    argument: str = ""
    text_field: str = ""
    """The result field with the file's text. When empty, the whole result is returned as JSON."""
    needs_project: bool = True


RESOURCES: Final = (
    ProjectResource("godot://project/info", "Project", projects.info),
    ProjectResource("godot://project/settings", "Project settings", settings.get_settings),
    ProjectResource("godot://project/settings/{section}", "Section of settings", settings.get_settings, "section"),
    ProjectResource("godot://export/presets", "Export presets", exporting.list_presets),
    ProjectResource("godot://system/version", "Engine version", projects.version, needs_project=False),
    ProjectResource("godot://scenes", "Scenes", scenes.list_scenes),
    ProjectResource("godot://scene/{path}/tree", "Node tree", inspection.tree, "scenePath"),
    ProjectResource("godot://scene/{path}", "Scene", scenes.read, "scenePath", text_field="content"),
    ProjectResource("godot://scripts", "Scripts", scripts.list_scripts),
    ProjectResource("godot://script/errors", "Script errors", scripts.check),
    ProjectResource("godot://script/{path}", "Script", scripts.read, "scriptPath", text_field="content"),
    ProjectResource("godot://assets", "Assets", assets.list_assets),
    ProjectResource("godot://assets/{category}", "Assets of a category", assets.list_assets, "category"),
    ProjectResource("godot://resources", "Resources", assets.list_resources),
    ProjectResource("godot://uid/{path}", "UID", scenes.get_uid, "filePath"),
    ProjectResource("godot://editor/events", "Editor events", running.get_events, needs_project=False),
    ProjectResource("godot://debug/output", "Debug output", running.get_output, needs_project=False),
    ProjectResource("godot://debug/stream", "Debug stream", running.read_stream, needs_project=False),
)


def list_resources() -> list[Json]:
    """Return the entries for `resources/list`."""
    fixed = [resource for resource in RESOURCES if not resource.argument]
    shown = [{"uri": resource.uri, "name": resource.title, "mimeType": _JSON} for resource in fixed]
    shown += [
        {"uri": f"godot-template://{name}", "name": name, "mimeType": _MIME[".gd"]} for name in sorted(_TEMPLATE_NAMES)
    ]
    return shown


def list_templates() -> list[Json]:
    """Return the entries for `resources/templates/list`. Clients may percent-encode a path or not."""
    shown: list[Json] = []
    for resource in RESOURCES:
        query = "{?project}" if resource.needs_project else ""
        if query or resource.argument:
            pattern = resource.uri.replace("{path}", "{+path}") + query
            shown.append({"uriTemplate": pattern, "name": resource.title})
    return shown


async def read(services: Services, caller: Caller, uri: str) -> Json:
    """Return the result of `resources/read`."""
    if uri.startswith("godot-template://"):
        return _read_template(uri)
    address, _, query = uri.partition("?")
    resource, value = _find_resource(address, uri)
    arguments: Json = {resource.argument: value} if resource.argument else {}
    if resource.argument == "scenePath" and resource.text_field:
        arguments["maxChars"] = 1_000_000
    project = await asyncio.to_thread(_find_project, services, caller, query) if resource.needs_project else None
    call = ToolCall("resources/read", None, arguments, caller, services, _ignore_progress, project)
    outcome = await run_handler(resource.handler, call)
    return {"contents": [_build_content(uri, resource, value, outcome)]}


def _find_resource(address: str, uri: str) -> tuple[ProjectResource, str]:
    for resource in RESOURCES:
        pattern = re.sub(r"\\\{\w+\\\}", "(.+)", re.escape(resource.uri))
        if (found := re.fullmatch(pattern, address)) is not None:
            return resource, unquote(found[1]) if found.groups() else ""
    raise UnknownName(f"There is no resource {uri}.", uri=uri)


def _find_project(services: Services, caller: Caller, query: str) -> Project:
    """Find a project by its folder name below a root of the caller."""
    wanted = parse_qs(query).get("project", [None])[0]
    roots = services.roots.for_caller(caller, services.folder(caller))
    found = sorted(
        path.parent for root in roots for path in root.glob("*/project.godot") if not path.parent.is_symlink()
    )
    named = [path for path in found if wanted in (None, path.name)]
    if len(named) != 1:
        raise Fault(
            Kind.NOT_FOUND,
            "There is no such project." if wanted else "Specify which project to read with ?project=NAME.",
            details={"projects": [path.name for path in found]},
        )
    return Project(named[0].resolve())


def _build_content(uri: str, resource: ProjectResource, value: str, outcome: Outcome) -> Json:
    if resource.text_field:
        suffix = "." + value.rpartition(".")[2]
        return {"uri": uri, "mimeType": _MIME.get(suffix, "text/plain"), "text": outcome.details[resource.text_field]}
    return {"uri": uri, "mimeType": _JSON, "text": json.dumps(outcome.details, ensure_ascii=False)}


def _read_template(uri: str) -> Json:
    name = urlsplit(uri).netloc
    if name not in _TEMPLATE_NAMES:
        raise UnknownName(f"There is no resource {uri}.", uri=uri)
    text = _TEMPLATE_TEXTS.get(name) or TEMPLATES[_TEMPLATE_NAMES[name]].format(name="")
    return {"contents": [{"uri": uri, "mimeType": _MIME[".gd"], "text": text}]}


_TEMPLATE_TEXTS: Final[Mapping[str, str]] = {
    "state-machine": (
        'extends Node\n\nsignal changed(state: StringName)\n\nvar state := &"idle":\n\tset(value):\n'
        "\t\tif value != state:\n\t\t\tstate = value\n\t\t\tchanged.emit(state)\n"
    ),
    "singleton-autoload": "extends Node\n\nvar score := 0\n\n\nfunc reset() -> void:\n\tscore = 0\n",
}


async def _ignore_progress(progress: float, total: float | None, message: str) -> None:
    """Discard progress: `resources/read` does not report any."""
