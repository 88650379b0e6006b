"""The definition of a tool (`Tool`, `Action`) and a single call of it (`ToolCall`).

`tool_table` lists the tools; `handlers` implement them; `dispatch` chooses the executor.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Final

from backends.godot.envelope import OUTPUT_SCHEMA, Outcome
from backends.godot.parameter_notation import DESCRIPTIONS, parse_parameters
from backends.godot.paths import Project, ProjectPath
from gateway.contract import Caller, Json
from gateway.errors import Fault, Kind

if TYPE_CHECKING:
    from backends.godot.services import Services

ProgressReporter = Callable[[float, float | None, str], Awaitable[None]]
"""Sends (progress, total, message) to the client."""

READ: Final = 0
SET: Final = 1
WRITE: Final = 2


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One tool call as handlers receive it.

    The gateway has validated the arguments against the tool's schema, and `projectPath` is resolved to a `Project`.
    """

    tool: str
    action: str | None
    arguments: Json
    caller: Caller
    services: "Services"
    report_progress: ProgressReporter
    optional_project: Project | None = None

    @property
    def project(self) -> Project:
        """The project of the call. Raises `Fault(UNAVAILABLE)` without `projectPath`."""
        if self.optional_project is None:
            raise Fault(
                Kind.UNAVAILABLE,
                "Without projectPath this call needs an editor, and no editor is connected.",
            )
        return self.optional_project

    def get(self, name: str, default: Any = None) -> Any:
        """Return an argument, or `default` when it is missing or null."""
        value = self.arguments.get(name)
        return default if value is None else value

    def text(self, name: str, default: str = "") -> str:
        """Return an argument as text."""
        return str(self.get(name, default))

    def resolve_path(self, name: str, default: str | None = None) -> ProjectPath:
        """Return the file or folder inside the project that an argument names."""
        value = self.get(name, default)
        if value is None:
            raise Fault(Kind.INVALID_INPUT, f"{name} is required.")
        return self.project.resolve(str(value), name)

    def resolve_scene_path(self) -> ProjectPath:
        if self.get("scenePath") is None:
            raise Fault(Kind.UNAVAILABLE, "Without scenePath this call needs an editor, and no editor is connected.")
        return self.resolve_path("scenePath")

    def with_arguments(self, **arguments: Any) -> "ToolCall":
        """Return this call with some arguments replaced, for a handler that delegates to another one."""
        merged = {**self.arguments, **arguments}
        return ToolCall(
            self.tool, self.action, merged, self.caller, self.services, self.report_progress, self.optional_project
        )


Handler = Callable[[ToolCall], Awaitable[Outcome]] | Callable[[ToolCall], Outcome]
"""An asynchronous function, or a synchronous one that only accesses files and runs in a thread."""


async def run_handler(handler: Handler, call: ToolCall) -> Outcome:
    """Await an asynchronous handler; run a synchronous one in a thread."""
    if iscoroutinefunction(handler):
        return await handler(call)
    return await asyncio.to_thread(partial(_run_sync, handler), call)


def _run_sync(handler: Any, call: ToolCall) -> Outcome:
    return handler(call)


GATE_META: Final = "godot:gate"
DANGEROUS_OPS_GATE: Final = "ALLOW_DANGEROUS_OPS"


@dataclass(frozen=True, slots=True)
class Action:
    """One action of a manager tool."""

    name: str
    signature: str
    """Parameters in the notation of `parameter_notation`."""
    handler: Handler | None = None
    """None when only an editor can execute the action."""
    editor_method: str = ""
    """Method of a connected editor that executes the action."""
    exactly_one_of: str = ""
    """Space-separated parameters of which a call must contain exactly one."""
    gated_operation: str = ""
    """Operation name that the dangerous-operations gate checks; empty for an action without a gate."""


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool: a row of the tool table."""

    name: str
    title: str
    description: str
    effect: int
    signature: str
    """Parameters in the notation of `parameter_notation`."""
    handler: Handler | None = None
    """None when only an editor can execute the tool, and for managers."""
    actions: Sequence[Action] = ()
    common_signature: str = ""
    """Parameters that every action of a manager accepts."""
    editor_method: str = ""
    """Method of a connected editor that executes the tool."""
    destructive: bool = False
    dangerous: bool = False
    """Whether the tool requires ALLOW_DANGEROUS_OPS."""
    open_world: bool = False
    read_only: bool | None = None
    """Overrides `readOnlyHint` where it differs from the effect: the tool affects processes but no files."""
    needs_project: bool = True
    """Whether the folder must already contain a project."""
    timeout: float | None = None
    takes_project_lock: bool = field(default=True)
    """Whether the call waits for other calls that change the same project."""

    def find_action(self, name: object) -> Action | None:
        return next((each for each in self.actions if each.name == name), None)

    def schema(self) -> Json:
        return _manager_schema(self) if self.actions else _object_schema(self.signature)

    @property
    def gated_actions(self) -> list[str]:
        """Names of the actions that require ALLOW_DANGEROUS_OPS."""
        return [action.name for action in self.actions if action.gated_operation]

    def definition(self, *, gate_open: bool) -> Json:
        """Return the entry for `tools/list`. It also states which parts are disabled."""
        read_only = self.effect == READ if self.read_only is None else self.read_only
        meta: Json = {"godot:manager": bool(self.actions), "godot:needsDangerousOps": self.dangerous}
        gate_note = ""
        if self.dangerous or self.gated_actions:
            meta[GATE_META] = {"name": DANGEROUS_OPS_GATE, "open": gate_open, "actions": self.gated_actions}
            subject = f"Without an editor {', '.join(self.gated_actions)} are" if self.gated_actions else "It is"
            gate_note = "" if gate_open else f" {subject} disabled here: {DANGEROUS_OPS_GATE} is not set."
        return {
            "name": self.name,
            "title": self.title,
            "description": self.description + gate_note,
            "inputSchema": self.schema(),
            "outputSchema": OUTPUT_SCHEMA,
            "annotations": {
                "title": self.title,
                "readOnlyHint": read_only,
                "destructiveHint": self.destructive or self.dangerous,
                "idempotentHint": self.effect < WRITE,
                "openWorldHint": self.open_world,
            },
            "_meta": meta,
        }


def _object_schema(signature: str) -> Json:
    properties, required = parse_parameters(signature)
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def _manager_schema(tool: Tool) -> Json:
    """Build the schema of a manager.

    `action` selects a `oneOf` branch. A branch lists the allowed parameters; the root defines their types.
    """
    properties: Json = {
        "action": {
            "type": "string",
            "enum": [each.name for each in tool.actions],
            "description": DESCRIPTIONS["action"],
        }
    }
    branches: list[Json] = []
    for action in tool.actions:
        own, required = parse_parameters(f"{tool.common_signature} {action.signature}")
        properties |= {name: schema for name, schema in own.items() if name not in properties}
        allowed: Json = {"action": {"const": action.name}, **dict.fromkeys(own, True)}
        needed = ["action", *required]
        branch: Json = {"properties": allowed, "required": needed, "additionalProperties": False}
        if action.exactly_one_of:
            branch["oneOf"] = [{"required": [name]} for name in action.exactly_one_of.split()]
        branches.append(branch)
    return {
        "type": "object",
        "properties": properties,
        "required": ["action"],
        "additionalProperties": False,
        "oneOf": branches,
    }
