"""Workflow definitions: the JSON schema, and the parser that validates a definition and fills in defaults."""

from dataclasses import dataclass
from typing import Any, Final

from backends.gox.action import closed_schema
from gateway.contract import Json
from gateway.errors import Fault, Kind

MAX_NAME: Final = 200
"""Maximum length of an id; ids are repeated in every log line."""
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
class Step:
    id: str
    action: str
    input: Json
    timeout: float
    attempts: int
    backoff: float
    when: StepCondition | None


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
    )


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
