"""Workflow definitions: the JSON schema, and the parser that validates a definition and fills in defaults."""

from dataclasses import dataclass
from typing import Any, Final

from backends.gox.action import closed_schema
from gateway.contract import Json
from gateway.errors import Fault, Kind

MAX_NAME: Final = 200
"""Maximum length of an id; ids are repeated in every log line."""
MAX_PARALLEL: Final = 8
_MILLISECONDS: Final[Json] = {"type": "integer", "minimum": 0}

STEP_SCHEMA: Final[Json] = closed_schema(
    {
        "id": {"type": "string", "maxLength": MAX_NAME, "description": "Default: step-<n>."},
        "actionId": {
            "type": "string",
            "minLength": 1,
            "maxLength": MAX_NAME,
            "description": "A tool that you are allowed to call, as namespace.tool.",
        },
        "input": {
            "type": "object",
            "description": "The arguments. ${steps.<id>.output.<path>} inserts the output of an earlier step.",
        },
        "timeoutMs": _MILLISECONDS,
        "retry": closed_schema({"maxAttempts": {"type": "integer", "minimum": 0}, "backoffMs": _MILLISECONDS}),
        "onFailure": {
            "description": "After the last attempt failed: stop the run (the default), continue with the next step, or"
            " go to a later step.",
            "anyOf": [
                {"type": "string", "enum": ["stop", "continue"]},
                closed_schema({"goto": {"type": "string", "minLength": 1}}, required=("goto",)),
            ],
        },
        "forEach": closed_schema(
            {
                "stepId": {"type": "string", "minLength": 1},
                "path": {"type": "string"},
                "parallel": {"type": "integer", "minimum": 1, "maximum": MAX_PARALLEL},
            },
            required=("stepId",),
            description="Call the tool once for each item of an array that an earlier step returned. ${item},"
            " ${item.<path>} and ${index} stand for the item. The output is {items: [...]}.",
        ),
        "when": closed_schema(
            {"stepId": {"type": "string", "minLength": 1}, "path": {"type": "string"}, "equals": {}},
            required=("stepId", "equals"),
        ),
    },
    required=("actionId",),
)
SCHEMA: Final[Json] = closed_schema(
    {
        "id": {"type": "string", "minLength": 1, "maxLength": MAX_NAME},
        "steps": {"type": "array", "minItems": 1, "items": STEP_SCHEMA},
    },
    required=("id", "steps"),
)


@dataclass(frozen=True, slots=True)
class Limits:
    max_steps: int
    default_timeout: float
    max_timeout: float
    max_attempts: int
    max_backoff: float


@dataclass(frozen=True, slots=True)
class StepCondition:
    """The step runs only if the output of an earlier step at `path` equals `equals`."""

    step_id: str
    path: str
    equals: Any


@dataclass(frozen=True, slots=True)
class ForEach:
    """The step calls its tool for each item of the array at `path` in the output of an earlier step."""

    step_id: str
    path: str
    parallel: int


@dataclass(frozen=True, slots=True)
class Step:
    id: str
    action: str
    input: Json
    timeout: float
    attempts: int
    backoff: float
    when: StepCondition | None
    for_each: ForEach | None = None
    continues: bool = False
    """Whether the run goes on after the step failed."""
    goto: str | None = None
    """The later step to go on with after the step failed; None: the next one."""


@dataclass(frozen=True, slots=True)
class Definition:
    id: str
    steps: tuple[Step, ...]


def parse(raw: Json, limits: Limits) -> Definition:
    """Parse a definition that already matches `SCHEMA`. Raises `Fault(INVALID_INPUT)`."""
    name = raw["id"].strip()
    if not name:
        raise _invalid("definition.id is required", "definition.id", "required")
    steps: list[Json] = raw["steps"]
    if len(steps) > limits.max_steps:
        raise _invalid(f"a workflow has at most {limits.max_steps} steps", "definition.steps", "maxItems")
    parsed: dict[str, Step] = {}
    for number, raw in enumerate(steps, 1):
        step = _parse_step(raw, number, limits, parsed)
        if step.id in parsed:
            raise _invalid(f"duplicate step id {step.id!r}", f"definition.steps.{number - 1}.id", "unique")
        parsed[step.id] = step
    order = list(parsed)
    for position, step in enumerate(parsed.values()):
        if step.goto is not None and step.goto not in order[position + 1 :]:
            at = f"definition.steps.{position}.onFailure.goto"
            raise _invalid(f"onFailure.goto {step.goto!r} names no later step", at, "laterStep")
    return Definition(name, tuple(parsed.values()))


def _parse_step(raw: Json, number: int, limits: Limits, earlier: dict[str, Step]) -> Step:
    at = f"definition.steps.{number - 1}"
    action = raw["actionId"].strip()
    if not action:
        raise _invalid("actionId is required", f"{at}.actionId", "required")
    retry: Json = raw.get("retry") or {}
    attempts = retry.get("maxAttempts") or 1
    if attempts > limits.max_attempts:
        raise _invalid(f"maxAttempts is at most {limits.max_attempts}", f"{at}.retry.maxAttempts", "maximum")
    return Step(
        id=(raw.get("id") or "").strip() or f"step-{number}",
        action=action,
        input=raw.get("input") or {},
        timeout=_parse_milliseconds(raw.get("timeoutMs"), limits.max_timeout, f"{at}.timeoutMs")
        or limits.default_timeout,
        attempts=attempts,
        backoff=_parse_milliseconds(retry.get("backoffMs"), limits.max_backoff, f"{at}.retry.backoffMs"),
        when=_parse_condition(raw.get("when"), earlier, at),
        for_each=_parse_for_each(raw.get("forEach"), earlier, at),
        continues=raw.get("onFailure", "stop") != "stop",
        goto=raw["onFailure"]["goto"].strip() if isinstance(raw.get("onFailure"), dict) else None,
    )


def _parse_for_each(raw: Json | None, earlier: dict[str, Step], at: str) -> ForEach | None:
    if raw is None:
        return None
    step_id = raw["stepId"].strip()
    if step_id not in earlier:
        raise _invalid(f"forEach.stepId {step_id!r} names no earlier step", f"{at}.forEach.stepId", "earlierStep")
    return ForEach(step_id, raw.get("path") or "", raw.get("parallel", 1))


def _parse_condition(raw: Json | None, earlier: dict[str, Step], at: str) -> StepCondition | None:
    if raw is None:
        return None
    step_id = raw["stepId"].strip()
    if step_id not in earlier:
        raise _invalid(f"when.stepId {step_id!r} names no earlier step", f"{at}.when.stepId", "earlierStep")
    return StepCondition(step_id, raw.get("path") or "", raw["equals"])


def _parse_milliseconds(milliseconds: int | None, maximum: float, at: str) -> float:
    seconds = (milliseconds or 0) / 1000
    if seconds > maximum:
        raise _invalid(f"{at.rpartition('.')[2]} is at most {maximum * 1000:g}", at, "maximum")
    return seconds


def _invalid(message: str, path: str, rule: str) -> Fault:
    details = {"validation_path": f"input.{path}", "validation_rule": rule}
    return Fault(Kind.INVALID_INPUT, message, details=details)
