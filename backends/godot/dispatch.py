"""Which executor does it: the editor that has the project open, else the engine and the files."""

import re
from typing import Final

from backends.godot.envelope import Outcome
from backends.godot.tool import Action, Job, Tool, carry_out
from gateway.contract import Json
from gateway.errors import Fault, Kind

_OURS: Final = frozenset({"projectPath", "action", "timeoutMs", "mode", "godotPath", "token", "host", "port"})
_PATHS: Final = re.compile(r"(?i)(^|_)(path|paths|files)$|(?<=[a-z])Paths?$")
_NODES: Final = frozenset({"nodePath", "parentNodePath", "newParentPath", "fromNodePath", "toNodePath"})
_NODES_TOO: Final = frozenset({"sourceNodePath", "playerPath", "panelPath"})
_SECONDS: Final = 10.0


async def perform(tool: Tool, action: Action | None, job: Job) -> Outcome:
    run, method = (action.run, action.editor) if action else (tool.run, tool.editor)
    if tool.dangerous:
        job.desk.permit_danger(tool.name)
    if method and _has_editor(job, needed=run is None):
        return await by_editor(job, method)
    if run is None:
        raise Fault(Kind.UNAVAILABLE, "This needs an editor, and none is connected.")
    if job.given is not None and job.given.remote:
        raise Fault(Kind.UNSUPPORTED, "The project is on another machine, and its editor cannot do this.")
    if action is not None and action.operation:
        job.desk.permit_danger(action.operation)
    return await carry_out(run, job)


def _has_editor(job: Job, *, needed: bool) -> bool:
    if job.get("mode") == "headless":
        return False
    if job.given is not None:
        return job.desk.editors.of(job.caller, job.given) is not None
    return needed or bool(job.desk.editors.connected(job.caller))


async def by_editor(job: Job, method: str) -> Outcome:
    """Paths are confined here as well as in the editor itself."""
    params: Json = {}
    for name, value in job.arguments.items():
        if name in _OURS or value is None:
            continue
        if job.given is not None and isinstance(value, str) and _PATHS.search(name) and name not in _NODES | _NODES_TOO:
            value = job.given.inside(value, name).res
        params[snake(name)] = value
    return await ask_editor(job, method, params)


async def ask_editor(job: Job, method: str, params: Json) -> Outcome:
    seconds = float(job.get("timeoutMs", _SECONDS * 1000)) / 1000
    details = await job.desk.editors.ask(job.caller, job.given, method, params, seconds)
    summary = str(details.pop("summary", None) or "The editor did it.")
    return Outcome(summary, details, execution={"executor": "editor", "method": method})


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()


def camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word[:1].upper() + word[1:] for word in rest)
