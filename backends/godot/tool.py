"""One call to a tool, and the rows that tools are."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Final, TypeVar

from backends.godot.envelope import OUTPUT_SCHEMA, Outcome
from backends.godot.parameter_notation import WORDS, parameters
from backends.godot.paths import Place, Project
from gateway.contract import Caller, Json
from gateway.errors import Fault, Kind

if TYPE_CHECKING:
    from backends.godot.services import Desk

T = TypeVar("T")
Report = Callable[[float, float | None, str], Awaitable[None]]

READ: Final = 0
SET: Final = 1
WRITE: Final = 2


@dataclass(frozen=True, slots=True)
class Job:
    """A call, checked by the gateway against the tool's schema; its `projectPath` is already a `Project`."""

    tool: str
    action: str | None
    arguments: Json
    caller: Caller
    desk: "Desk"
    report: Report
    """(progress, total, message) to the client that asked for progress."""
    given: Project | None = None

    @property
    def project(self) -> Project:
        if self.given is None:
            raise Fault(
                Kind.UNAVAILABLE,
                "Without projectPath this needs an editor, and none is connected.",
            )
        return self.given

    def get(self, name: str, default: Any = None) -> Any:
        value = self.arguments.get(name)
        return default if value is None else value

    def text(self, name: str, default: str = "") -> str:
        return str(self.get(name, default))

    def place(self, name: str, default: str | None = None) -> Place:
        """The file or folder that an argument names, inside the project."""
        given = self.get(name, default)
        if given is None:
            raise Fault(Kind.INVALID_INPUT, f"{name} is needed.")
        return self.project.inside(str(given), name)

    def scene(self) -> Place:
        if self.get("scenePath") is None:
            raise Fault(Kind.UNAVAILABLE, "Without scenePath this needs an editor, and none is connected.")
        return self.place("scenePath")

    def with_(self, **arguments: Any) -> "Job":
        """The same job with other arguments: what a manager's action passes on to the tool that does it."""
        merged = {**self.arguments, **arguments}
        return Job(self.tool, self.action, merged, self.caller, self.desk, self.report, self.given)


Run = Callable[[Job], Awaitable[Outcome]] | Callable[[Job], Outcome]
"""An asynchronous function, or one that only works on files and is run in a thread."""


async def carry_out(run: Run, job: Job) -> Outcome:
    if iscoroutinefunction(run):
        return await run(job)
    return await asyncio.to_thread(partial(_sync, run), job)


def _sync(run: Any, job: Job) -> Outcome:
    return run(job)


GATE: Final = "godot:gate"
DANGER: Final = "ALLOW_DANGEROUS_OPS"


@dataclass(frozen=True, slots=True)
class Action:
    """One action of a manager."""

    name: str
    written: str
    run: Run | None = None
    """None: only an editor can do it."""
    editor: str = ""
    """The method of a connected editor that does the same."""
    exactly: str = ""
    """Parameters, blanks between, of which there must be one and only one."""
    operation: str = ""
    """What the gate of dangerous operations knows it as, where it has to pass it."""


@dataclass(frozen=True, slots=True)
class Tool:
    """One row of the tables."""

    name: str
    title: str
    description: str
    effect: int
    written: str
    run: Run | None = None
    actions: Sequence[Action] = ()
    common: str = ""
    """Parameters that every action of a manager takes."""
    editor: str = ""
    """The method of a connected editor that does the same."""
    destructive: bool = False
    dangerous: bool = False
    """Whether it needs ALLOW_DANGEROUS_OPS."""
    open_world: bool = False
    read_only: bool | None = None
    """What the annotation says, where it says other than the effect: processes are touched, files are not."""
    needs_project: bool = True
    """Whether the folder must hold a project already."""
    timeout: float | None = None
    locks: bool = field(default=True)
    """Whether it waits for others that change the same project."""

    def chosen(self, name: object) -> Action | None:
        return next((each for each in self.actions if each.name == name), None)

    def schema(self) -> Json:
        return _managed(self) if self.actions else _closed(self.written)

    @property
    def gated(self) -> list[str]:
        """The actions that have to pass the gate of dangerous operations."""
        return [action.name for action in self.actions if action.operation]

    def definition(self, *, gate_open: bool) -> Json:
        """As it is listed: also what of it is switched off."""
        reads = self.effect == READ if self.read_only is None else self.read_only
        meta: Json = {"godot:manager": bool(self.actions), "godot:needsDangerousOps": self.dangerous}
        closed = ""
        if self.dangerous or self.gated:
            meta[GATE] = {"name": DANGER, "open": gate_open, "actions": self.gated}
            what = f"Without an editor {', '.join(self.gated)} are" if self.gated else "It is"
            closed = "" if gate_open else f" {what} switched off here: {DANGER} is not set."
        return {
            "name": self.name,
            "title": self.title,
            "description": self.description + closed,
            "inputSchema": self.schema(),
            "outputSchema": OUTPUT_SCHEMA,
            "annotations": {
                "title": self.title,
                "readOnlyHint": reads,
                "destructiveHint": self.destructive or self.dangerous,
                "idempotentHint": self.effect < WRITE,
                "openWorldHint": self.open_world,
            },
            "_meta": meta,
        }


def _closed(written: str) -> Json:
    properties, required = parameters(written)
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def _managed(tool: Tool) -> Json:
    """`action` chooses the branch; a branch says which parameters go with it, the root what each of them is."""
    properties: Json = {
        "action": {"type": "string", "enum": [each.name for each in tool.actions], "description": WORDS["action"]}
    }
    branches: list[Json] = []
    for action in tool.actions:
        own, required = parameters(f"{tool.common} {action.written}")
        properties |= {name: schema for name, schema in own.items() if name not in properties}
        allowed: Json = {"action": {"const": action.name}, **dict.fromkeys(own, True)}
        needed = ["action", *required]
        branch: Json = {"properties": allowed, "required": needed, "additionalProperties": False}
        if action.exactly:
            branch["oneOf"] = [{"required": [name]} for name in action.exactly.split()]
        branches.append(branch)
    return {
        "type": "object",
        "properties": properties,
        "required": ["action"],
        "additionalProperties": False,
        "oneOf": branches,
    }
