"""Chooses the executor of a tool call: the editor that has the project open, otherwise the handler.

Handlers use the headless engine and the project's files.
"""

import re
from typing import Final

from backends.godot.envelope import Outcome
from backends.godot.tool import Action, Tool, ToolCall, run_handler
from gateway.contract import Json
from gateway.errors import Fault, Kind

_GATEWAY_PARAMETERS: Final = frozenset(
    {"projectPath", "action", "timeoutMs", "mode", "godotPath", "token", "host", "port"}
)
_PATH_NAMES: Final = re.compile(r"(?i)(^|_)(path|paths|files)$|(?<=[a-z])Paths?$")
_NODE_PATHS: Final = frozenset(
    {
        "nodePath",
        "parentNodePath",
        "newParentPath",
        "fromNodePath",
        "toNodePath",
        "sourceNodePath",
        "playerPath",
        "panelPath",
    }
)
"""Paths of nodes inside a scene, which are not file paths."""
_DEFAULT_TIMEOUT: Final = 10.0


async def perform(tool: Tool, action: Action | None, call: ToolCall) -> Outcome:
    """Run a tool call in the connected editor if it can execute it, otherwise with the tool's handler."""
    handler, method = (action.handler, action.editor_method) if action else (tool.handler, tool.editor_method)
    if tool.dangerous:
        call.services.check_dangerous(tool.name)
    if method and _has_editor(call, needed=handler is None):
        return await run_in_editor(call, method)
    if handler is None:
        raise Fault(Kind.UNAVAILABLE, "This call needs an editor, and no editor is connected.")
    if call.optional_project is not None and call.optional_project.is_remote:
        raise Fault(Kind.UNSUPPORTED, "The project is on another machine, and its editor cannot do this.")
    if action is not None and action.gated_operation:
        call.services.check_dangerous(action.gated_operation)
    return await run_handler(handler, call)


def _has_editor(call: ToolCall, *, needed: bool) -> bool:
    if call.get("mode") == "headless":
        return False
    if call.optional_project is not None:
        return call.services.editors.find(call.caller, call.optional_project) is not None
    return needed or bool(call.services.editors.connected(call.caller))


async def run_in_editor(call: ToolCall, method: str) -> Outcome:
    """Send the call to the editor. Paths are checked here in addition to the editor's own check."""
    params: Json = {}
    for name, value in call.arguments.items():
        if name in _GATEWAY_PARAMETERS or value is None:
            continue
        if (
            call.optional_project is not None
            and isinstance(value, str)
            and _PATH_NAMES.search(name)
            and name not in _NODE_PATHS
        ):
            value = call.optional_project.resolve(value, name).res
        params[to_snake_case(name)] = value
    return await request_editor(call, method, params)


async def request_editor(call: ToolCall, method: str, params: Json) -> Outcome:
    """Call a method of the editor and return its result as an outcome."""
    timeout = float(call.get("timeoutMs", _DEFAULT_TIMEOUT * 1000)) / 1000
    details = await call.services.editors.request(call.caller, call.optional_project, method, params, timeout)
    summary = str(details.pop("summary", None) or "The editor executed the call.")
    return Outcome(summary, details, execution={"executor": "editor", "method": method})


def to_snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()


def to_camel_case(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word[:1].upper() + word[1:] for word in rest)
