"""The workspace around a project: guidelines, the engine's own reference, a report, the editor's add-on."""

import asyncio
import re
from pathlib import Path
from typing import Final

from backends.godot import files
from backends.godot.engine.worker import Done
from backends.godot.envelope import Outcome
from backends.godot.handlers import projects
from backends.godot.handlers.settings import place_of
from backends.godot.paths import OURS, Place
from backends.godot.text import settings
from backends.godot.text.scan import quoted
from backends.godot.tool import Job, Tool
from gateway.contract import Json
from gateway.errors import Fault, Kind

ADDON: Final = Path(__file__).parents[1] / "addon"
_HOME: Final = "addons/gatehouse"
_GUIDELINES: Final = "GUIDELINES.md"


# ---- guidelines ---------------------------------------------------------------------------------------------------


def _guidelines(job: Job) -> tuple[Place, list[str]]:
    place = job.place("guidelinesFilePath", _GUIDELINES)
    return place, files.read_text(place, "The guidelines").splitlines()


def search_guidelines(job: Job) -> Outcome:
    place, lines = _guidelines(job)
    wanted = job.text("query").lower()
    found = [{"line": number, "text": line} for number, line in enumerate(lines, 1) if wanted in line.lower()]
    most = int(job.get("maxMatches", 10))
    return Outcome(f"{len(found)} lines match.", {"file": place.res, "matches": found[:most]})


def guideline_section(job: Job) -> Outcome:
    place, lines = _guidelines(job)
    wanted = job.text("section").lower()
    start = next((index for index, line in enumerate(lines) if _heading(line)[1].lower() == wanted), None)
    if start is None:
        names = [_heading(line)[1] for line in lines if _heading(line)[0]]
        raise Fault(Kind.NOT_FOUND, f"There is no section {job.text('section')!r}.", details={"sections": names})
    depth = _heading(lines[start])[0]
    rest = (index for index in range(start + 1, len(lines)) if 0 < _heading(lines[index])[0] <= depth)
    text = "\n".join(lines[start : next(rest, len(lines))])[: int(job.get("maxChars", 12000))]
    return Outcome(f"{len(text)} characters.", {"file": place.res, "content": text})


def _heading(line: str) -> tuple[int, str]:
    found = re.match(r"(#{1,6})\s+(.*?)\s*#*$", line)
    return (len(found[1]), found[2]) if found else (0, "")


# ---- the engine's reference ---------------------------------------------------------------------------------------


async def _ask(job: Job, operation: str, params: Json) -> Done:
    project = job.given or await asyncio.to_thread(job.desk.nowhere, job.caller)
    return await job.desk.ask(job.caller, project, operation, params)


async def search_docs(job: Job) -> Outcome:
    done = await _ask(job, "search_classes", {"query": job.text("query")})
    found: list[str] = done.value["classes"]
    return Outcome(f"{len(found)} classes.", {"classes": found[: int(job.get("maxResults", 10))], "total": len(found)})


async def class_docs(job: Job) -> Outcome:
    done = await _ask(job, "describe", {"class": job.text("className"), "own": True})
    return Outcome(f"{done.value['class']} is a {done.value['parent']}.", done.value)


async def doctor(job: Job) -> Outcome:
    """What is wrong with the project, as a page inside it."""
    place = job.place("reportRelativePath", f"{OURS}/reports/doctor_report.md")
    if place.path.suffix != ".md":
        raise Fault(Kind.INVALID_INPUT, "reportRelativePath must end in .md.")
    checked = await projects.validate(job)
    issues: list[Json] = checked.details["issues"]
    lines = [f"- {issue['file']}:{issue.get('line', 1)} {issue['message']}" for issue in issues] or ["No problems."]
    text = f"# Doctor's report\n\n{checked.summary}\n\n" + "\n".join(lines) + "\n"
    size = await asyncio.to_thread(files.write_text, place, text)
    details = {**checked.details, "reportPath": place.res}
    return Outcome(checked.summary, details, files=(place.described("report", size),))


# ---- the add-on ---------------------------------------------------------------------------------------------------


def sync_addon(job: Job) -> Outcome:
    """Our editor plugin in the project, switched on, with the key it connects with; the key is never shown."""
    made: list[Json] = []
    for source in sorted(ADDON.iterdir()):
        place = job.project.inside(f"{_HOME}/{source.name}")
        made.append(place.described("addon", files.write(place, source.read_bytes())))
    if job.get("enablePlugin", True):
        _enable(job)
    token = job.get("token")
    if token and job.get("ensureToken", True):
        place = Place(job.project.root, job.project.root / OURS / "bridge.cfg")
        text = files.read_text(place) if files.exists(place) else ""
        text = settings.put(text, "bridge", "token", quoted(token))
        text = settings.put(text, "bridge", "url", quoted(job.desk.options.bridge_url))
        files.write_text(place, text)
        place.path.chmod(0o600)
    details = {"addon": f"res://{_HOME}", "enabled": job.get("enablePlugin", True), "tokenStored": bool(token)}
    return Outcome("The editor's add-on is in place.", details, files=tuple(made))


def _enable(job: Job) -> None:
    place = place_of(job.project)
    text = files.read_text(place)
    plugin = f"res://{_HOME}/plugin.cfg"
    now = settings.get(text, "editor_plugins", "enabled") or "PackedStringArray()"
    if quoted(plugin) not in now:
        inner = now.removeprefix("PackedStringArray(").removesuffix(")").strip()
        value = f"PackedStringArray({', '.join(filter(None, [inner, quoted(plugin)]))})"
        files.write_text(place, settings.put(text, "editor_plugins", "enabled", value))


# ---- the tools themselves -----------------------------------------------------------------------------------------


def server_info(job: Job) -> Outcome:
    options = job.desk.options
    roots = [str(root) for root in job.desk.roots.of(job.caller, job.desk.folder(job.caller))]
    details: Json = {
        "name": "godot",
        "tools": len(job.desk.tools),
        "roots": roots,
        "engine": job.desk.engine.present,
        "editors": len(job.desk.editors.connected(job.caller)),
        "allowDangerousOps": options.allow_dangerous_ops,
        "allowExternalTools": options.allow_external_tools,
    }
    return Outcome(f"{len(job.desk.tools)} tools.", details)


def search_tools(job: Job) -> Outcome:
    words = set(re.findall(r"\w+", f"{job.text('query')} {job.text('context')}".lower()))
    scored = sorted(
        ((_score(tool, words), tool) for tool in job.desk.tools.values()), key=lambda each: (-each[0], each[1].name)
    )
    found = [
        {"name": tool.name, "title": tool.title, "description": tool.description} for score, tool in scored if score
    ]
    return Outcome(f"{len(found)} tools match.", {"tools": found[: int(job.get("limit", 5))]})


def _score(tool: Tool, words: set[str]) -> int:
    names = set(tool.name.split("_")) | {part for each in tool.actions for part in re.split(r"[._]", each.name)}
    text = f"{tool.title} {tool.description}".lower()
    return sum(3 * (word in names) + (word in text) for word in words)


def tool_help(job: Job) -> Outcome:
    tool = job.desk.tools.get(job.text("tool"))
    if tool is None:
        raise Fault(Kind.NOT_FOUND, f"There is no tool {job.text('tool')!r}.", suggested_fix="Use tool_search.")
    definition = tool.definition(gate_open=job.desk.options.allow_dangerous_ops)
    wanted = job.get("toolAction")
    details: Json = {"name": tool.name, "description": tool.description, "inputSchema": definition["inputSchema"]}
    if wanted is not None:
        if tool.chosen(wanted) is None:
            raise Fault(Kind.NOT_FOUND, f"{tool.name} has no action {wanted!r}.")
        branches: list[Json] = definition["inputSchema"]["oneOf"]
        details["inputSchema"] = next(each for each in branches if each["properties"]["action"]["const"] == wanted)
    return Outcome(tool.description, details)
