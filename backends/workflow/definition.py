"""A workflow as it was asked for, checked and with every default filled in."""

from dataclasses import dataclass
from typing import Any, Final

from backends.gox.action import closed
from gateway.contract import Json
from gateway.errors import Fault, Kind

MAX_NAME: Final = 200
"""Characters of an id: they stand in every line of a log."""
_MILLISECONDS: Final[Json] = {"type": "integer", "minimum": 0}

STEP_SCHEMA: Final[Json] = closed(
    {
        "id": {"type": "string", "maxLength": MAX_NAME, "description": "By default step-<n>."},
        "actionId": {
            "type": "string",
            "minLength": 1,
            "maxLength": MAX_NAME,
            "description": "Any tool that you may call, as namespace.tool.",
        },
        "input": {
            "type": "object",
            "description": "Its arguments. ${steps.<id>.output.<path>} stands for what an earlier step gave.",
        },
        "timeoutMs": _MILLISECONDS,
        "retry": closed({"maxAttempts": {"type": "integer", "minimum": 0}, "backoffMs": _MILLISECONDS}),
        "when": closed(
            {"stepId": {"type": "string", "minLength": 1}, "path": {"type": "string"}, "equals": {}},
            required=("stepId", "equals"),
        ),
    },
    required=("actionId",),
)
SCHEMA: Final[Json] = closed(
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
class When:
    """The step runs only if an earlier one's output, at that path, equals this."""

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
    when: When | None


@dataclass(frozen=True, slots=True)
class Definition:
    id: str
    steps: tuple[Step, ...]


def parse(given: Json, limits: Limits) -> Definition:
    """Raises `Fault(INVALID_INPUT)`. The schema has been checked before."""
    name = given["id"].strip()
    if not name:
        raise _invalid("definition.id is required", "definition.id", "required")
    steps: list[Json] = given["steps"]
    if len(steps) > limits.max_steps:
        raise _invalid(f"a workflow has at most {limits.max_steps} steps", "definition.steps", "maxItems")
    parsed: dict[str, Step] = {}
    for number, raw in enumerate(steps, 1):
        step = _step(raw, number, limits, parsed)
        if step.id in parsed:
            raise _invalid(f"duplicate step id {step.id!r}", f"definition.steps.{number - 1}.id", "unique")
        parsed[step.id] = step
    return Definition(name, tuple(parsed.values()))


def _step(raw: Json, number: int, limits: Limits, earlier: dict[str, Step]) -> Step:
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
        timeout=_seconds(raw.get("timeoutMs"), limits.max_timeout, f"{at}.timeoutMs") or limits.default_timeout,
        attempts=attempts,
        backoff=_seconds(retry.get("backoffMs"), limits.max_backoff, f"{at}.retry.backoffMs"),
        when=_when(raw.get("when"), earlier, at),
    )


def _when(raw: Json | None, earlier: dict[str, Step], at: str) -> When | None:
    if raw is None:
        return None
    step_id = raw["stepId"].strip()
    if step_id not in earlier:
        raise _invalid(f"when.stepId {step_id!r} names no earlier step", f"{at}.when.stepId", "earlierStep")
    return When(step_id, raw.get("path") or "", raw["equals"])


def _seconds(milliseconds: int | None, most: float, at: str) -> float:
    seconds = (milliseconds or 0) / 1000
    if seconds > most:
        raise _invalid(f"{at.rpartition('.')[2]} is at most {most * 1000:g}", at, "maximum")
    return seconds


def _invalid(message: str, path: str, rule: str) -> Fault:
    details = {"validation_path": f"input.{path}", "validation_rule": rule}
    return Fault(Kind.INVALID_INPUT, message, details=details)
