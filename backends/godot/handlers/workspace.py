"""Handlers for guidelines, class reference, project report, editor add-on and tool help."""

import asyncio
import re
from pathlib import Path
from typing import Final

from backends.godot import files
from backends.godot.engine.worker import OperationResult
from backends.godot.envelope import Outcome
from backends.godot.handlers import projects
from backends.godot.handlers.settings import settings_path
from backends.godot.paths import DATA_FOLDER, ProjectPath
from backends.godot.text import settings
from backends.godot.text.scan import quote
from backends.godot.tool import Tool, ToolCall
from gateway.contract import Json
from gateway.errors import Fault, Kind

ADDON: Final = Path(__file__).parents[1] / "addon"
_ADDON_FOLDER: Final = "addons/gatehouse"
_GUIDELINES: Final = "GUIDELINES.md"


# ---- guidelines ---------------------------------------------------------------------------------------------------


def _guidelines(call: ToolCall) -> tuple[ProjectPath, list[str]]:
    location = call.resolve_path("guidelinesFilePath", _GUIDELINES)
    return location, files.read_text(location, "The guidelines").splitlines()


def search_guidelines(call: ToolCall) -> Outcome:
    location, lines = _guidelines(call)
    wanted = call.text("query").lower()
    found = [{"line": number, "text": line} for number, line in enumerate(lines, 1) if wanted in line.lower()]
    limit = int(call.get("maxMatches", 10))
    return Outcome(f"{len(found)} lines match.", {"file": location.res, "matches": found[:limit]})


def guideline_section(call: ToolCall) -> Outcome:
    location, lines = _guidelines(call)
    wanted = call.text("section").lower()
    start = next((index for index, line in enumerate(lines) if _parse_heading(line)[1].lower() == wanted), None)
    if start is None:
        names = [_parse_heading(line)[1] for line in lines if _parse_heading(line)[0]]
        raise Fault(Kind.NOT_FOUND, f"There is no section {call.text('section')!r}.", details={"sections": names})
    depth = _parse_heading(lines[start])[0]
    rest = (index for index in range(start + 1, len(lines)) if 0 < _parse_heading(lines[index])[0] <= depth)
    text = "\n".join(lines[start : next(rest, len(lines))])[: int(call.get("maxChars", 12000))]
    return Outcome(f"{len(text)} characters.", {"file": location.res, "content": text})


def _parse_heading(line: str) -> tuple[int, str]:
    found = re.match(r"(#{1,6})\s+(.*?)\s*#*$", line)
    return (len(found[1]), found[2]) if found else (0, "")


# ---- class reference ----------------------------------------------------------------------------------------------


async def _run_operation(call: ToolCall, operation: str, params: Json) -> OperationResult:
    project = call.optional_project or await asyncio.to_thread(call.services.scratch_project, call.caller)
    return await call.services.run_operation(call.caller, project, operation, params)


async def search_docs(call: ToolCall) -> Outcome:
    result = await _run_operation(call, "search_classes", {"query": call.text("query")})
    found: list[str] = result.value["classes"]
    return Outcome(f"{len(found)} classes.", {"classes": found[: int(call.get("maxResults", 10))], "total": len(found)})


async def class_docs(call: ToolCall) -> Outcome:
    result = await _run_operation(call, "describe", {"class": call.text("className"), "own": True})
    return Outcome(f"{result.value['class']} is a {result.value['parent']}.", result.value)


async def doctor(call: ToolCall) -> Outcome:
    """Validate the project and write the issues as a Markdown report."""
    location = call.resolve_path("reportRelativePath", f"{DATA_FOLDER}/reports/doctor_report.md")
    if location.path.suffix != ".md":
        raise Fault(Kind.INVALID_INPUT, "reportRelativePath must end in .md.")
    checked = await projects.validate(call)
    issues: list[Json] = checked.details["issues"]
    lines = [f"- {issue['file']}:{issue.get('line', 1)} {issue['message']}" for issue in issues] or ["No problems."]
    text = f"# Doctor's report\n\n{checked.summary}\n\n" + "\n".join(lines) + "\n"
    size = await asyncio.to_thread(files.write_text, location, text)
    details = {**checked.details, "reportPath": location.res}
    return Outcome(checked.summary, details, files=(location.describe("report", size),))


# ---- add-on -------------------------------------------------------------------------------------------------------


def sync_addon(call: ToolCall) -> Outcome:
    """Install and enable the editor plugin and store its bridge key. No response contains the key."""
    installed: list[Json] = []
    for source in sorted(ADDON.iterdir()):
        location = call.project.resolve(f"{_ADDON_FOLDER}/{source.name}")
        installed.append(location.describe("addon", files.write(location, source.read_bytes())))
    if call.get("enablePlugin", True):
        _enable_plugin(call)
    token = call.get("token")
    if token and call.get("ensureToken", True):
        location = ProjectPath(call.project.root, call.project.root / DATA_FOLDER / "bridge.cfg")
        text = files.read_text(location) if files.exists(location) else ""
        text = settings.set_value(text, "bridge", "token", quote(token))
        text = settings.set_value(text, "bridge", "url", quote(call.services.options.bridge_url))
        files.write_text(location, text)
        location.path.chmod(0o600)
    details = {"addon": f"res://{_ADDON_FOLDER}", "enabled": call.get("enablePlugin", True), "tokenStored": bool(token)}
    return Outcome("The editor add-on is installed.", details, files=tuple(installed))


def _enable_plugin(call: ToolCall) -> None:
    location = settings_path(call.project)
    text = files.read_text(location)
    plugin = f"res://{_ADDON_FOLDER}/plugin.cfg"
    enabled = settings.get_value(text, "editor_plugins", "enabled") or "PackedStringArray()"
    if quote(plugin) not in enabled:
        entries = enabled.removeprefix("PackedStringArray(").removesuffix(")").strip()
        value = f"PackedStringArray({', '.join(filter(None, [entries, quote(plugin)]))})"
        files.write_text(location, settings.set_value(text, "editor_plugins", "enabled", value))


# ---- tool help ----------------------------------------------------------------------------------------------------


def server_info(call: ToolCall) -> Outcome:
    options = call.services.options
    roots = [str(root) for root in call.services.roots.for_caller(call.caller, call.services.folder(call.caller))]
    details: Json = {
        "name": "godot",
        "tools": len(call.services.tools),
        "roots": roots,
        "engine": call.services.engine.is_available,
        "editors": len(call.services.editors.connected(call.caller)),
        "allowDangerousOps": options.allow_dangerous_ops,
        "allowExternalTools": options.allow_external_tools,
    }
    return Outcome(f"{len(call.services.tools)} tools.", details)


def search_tools(call: ToolCall) -> Outcome:
    words = set(re.findall(r"\w+", f"{call.text('query')} {call.text('context')}".lower()))
    scored = sorted(
        ((_score(tool, words), tool) for tool in call.services.tools.values()),
        key=lambda each: (-each[0], each[1].name),
    )
    found = [
        {"name": tool.name, "title": tool.title, "description": tool.description} for score, tool in scored if score
    ]
    return Outcome(f"{len(found)} tools match.", {"tools": found[: int(call.get("limit", 5))]})


def _score(tool: Tool, words: set[str]) -> int:
    names = set(tool.name.split("_")) | {part for each in tool.actions for part in re.split(r"[._]", each.name)}
    text = f"{tool.title} {tool.description}".lower()
    return sum(3 * (word in names) + (word in text) for word in words)


def tool_help(call: ToolCall) -> Outcome:
    tool = call.services.tools.get(call.text("tool"))
    if tool is None:
        raise Fault(Kind.NOT_FOUND, f"There is no tool {call.text('tool')!r}.", suggested_fix="Use tool_search.")
    definition = tool.definition(gate_open=call.services.options.allow_dangerous_ops)
    wanted = call.get("toolAction")
    details: Json = {"name": tool.name, "description": tool.description, "inputSchema": definition["inputSchema"]}
    if wanted is not None:
        if tool.find_action(wanted) is None:
            raise Fault(Kind.NOT_FOUND, f"{tool.name} has no action {wanted!r}.")
        branches: list[Json] = definition["inputSchema"]["oneOf"]
        details["inputSchema"] = next(each for each in branches if each["properties"]["action"]["const"] == wanted)
    return Outcome(tool.description, details)
