"""Validation and defaults of workflow definitions."""

from typing import Any

import pytest

from backends.workflow.definition import Limits, parse
from gateway.errors import Fault, Kind

LIMITS = Limits(max_steps=3, default_timeout=30, max_timeout=300, max_attempts=5, max_backoff=30)


def _parse(*steps: dict[str, Any], name: str = "w") -> Any:
    return parse({"id": name, "steps": [{"actionId": "core.ping", **step} for step in steps]}, LIMITS)


def test_missing_fields_get_their_defaults() -> None:
    parsed = _parse({}, {"id": " b ", "actionId": " core.ping "}, name=" w ")
    assert parsed.id == "w"
    first, second = parsed.steps
    assert (first.id, first.input, first.timeout, first.attempts, first.backoff) == ("step-1", {}, 30, 1, 0)
    assert (second.id, second.action) == ("b", "core.ping")


def test_zero_means_the_default() -> None:
    step = _parse({"timeoutMs": 0, "retry": {"maxAttempts": 0, "backoffMs": 0}}).steps[0]
    assert (step.timeout, step.attempts, step.backoff) == (30, 1, 0)


@pytest.mark.parametrize(
    ("steps", "path"),
    [
        ([{}] * 4, "input.definition.steps"),
        ([{"actionId": " "}], "input.definition.steps.0.actionId"),
        ([{"id": "a"}, {"id": "a"}], "input.definition.steps.1.id"),
        ([{"id": "step-2"}, {}], "input.definition.steps.1.id"),
        ([{"timeoutMs": 300_001}], "input.definition.steps.0.timeoutMs"),
        ([{"retry": {"maxAttempts": 6}}], "input.definition.steps.0.retry.maxAttempts"),
        ([{"retry": {"backoffMs": 30_001}}], "input.definition.steps.0.retry.backoffMs"),
        ([{"when": {"stepId": "step-1", "equals": 1}}], "input.definition.steps.0.when.stepId"),
        ([{"when": {"stepId": "step-2", "equals": 1}}, {}], "input.definition.steps.0.when.stepId"),
    ],
)
def test_invalid_definition_is_rejected_with_the_path_of_the_error(steps: list[dict[str, Any]], path: str) -> None:
    with pytest.raises(Fault) as caught:
        _parse(*steps)
    assert (caught.value.kind, caught.value.details["validation_path"]) == (Kind.INVALID_INPUT, path)


def test_blank_id_is_rejected() -> None:
    with pytest.raises(Fault, match=r"definition\.id"):
        _parse({}, name="  ")
