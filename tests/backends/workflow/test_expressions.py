"""Conditions and references over arbitrary JSON outputs."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.workflow.attempt import extract_output
from backends.workflow.definition import StepCondition
from backends.workflow.expressions import get_path, is_met, resolve_references
from backends.workflow.outputs import Outputs
from gateway.errors import Fault, Kind

MAX_BYTES = 1_048_576
KEYS = st.text("abc", min_size=1, max_size=3)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=12,
)


@settings(max_examples=25, deadline=None)
@given(st.lists(KEYS, max_size=4), JSON)
def test_value_is_found_at_its_path_and_equals_itself(path: list[str], value: Any) -> None:
    nested = value
    for key in reversed(path):
        nested = {key: nested}
    assert get_path(nested, ".".join(path)) is value
    assert is_met(StepCondition("s", ".".join(path), json.loads(json.dumps(value))), {"s": nested})


@settings(max_examples=25, deadline=None)
@given(JSON, JSON)
def test_equality_follows_json(one: Any, other: Any) -> None:
    alike = one == other and json.dumps(one, sort_keys=True).lower() == json.dumps(other, sort_keys=True).lower()
    if alike:
        assert is_met(StepCondition("s", "", other), {"s": one})
    elif one != other:
        assert not is_met(StepCondition("s", "", other), {"s": one})


@pytest.mark.parametrize(
    ("one", "other", "equal"), [(1, 1.0, True), (1, True, False), (None, False, False), ("1", 1, False)]
)
def test_integers_and_floats_compare_equal_but_other_types_differ(one: Any, other: Any, equal: bool) -> None:
    assert is_met(StepCondition("s", "", other), {"s": one}) is equal


@settings(max_examples=25, deadline=None)
@given(st.dictionaries(KEYS, JSON.filter(lambda value: "${" not in json.dumps(value))))
def test_arguments_without_references_are_unchanged(arguments: dict[str, Any]) -> None:
    assert resolve_references(arguments, {}, MAX_BYTES) == arguments


@settings(max_examples=25, deadline=None)
@given(JSON)
def test_reference_that_is_the_whole_string_keeps_the_type(value: Any) -> None:
    assert resolve_references({"x": ["${steps.s.output.v}"]}, {"s": {"v": value}}, MAX_BYTES) == {"x": [value]}


@pytest.mark.parametrize("reference", ["${steps.t.output}", "${steps.s.output.x}", "<${steps.s.output.v.w}>"])
def test_unresolvable_reference_is_rejected(reference: str) -> None:
    with pytest.raises(Fault, match="does not resolve to a value"):
        resolve_references({"x": reference}, {"s": {"v": 1}}, MAX_BYTES)


@pytest.mark.parametrize(
    "value", [["${steps.s.output}"] * 11, {"x": "${steps.s.output}" * 11}, "é${steps.s.output}" * 11]
)
def test_every_occurrence_of_a_reference_counts_towards_the_size_limit(value: Any) -> None:
    """Ten occurrences of 100 bytes reach the limit of 1000; the eleventh is rejected, in every form of argument."""
    outputs = {"s": "é" * 50}
    fitting = value[:10] if isinstance(value, list) else "<${steps.s.output}>" * 10
    assert json.dumps(resolve_references({"x": fitting}, outputs, 1000), ensure_ascii=False).count("é") == 500
    with pytest.raises(Fault) as caught:
        resolve_references({"x": value}, outputs, 1000)
    assert caught.value.kind is Kind.TOO_LARGE
    assert caught.value.details == {"payload_bytes": 1100, "max_bytes": 1000}


def test_short_text_that_expands_to_terabytes_is_rejected_without_building_it() -> None:
    class Counting(dict[str, Any]):
        read = 0

        def __getitem__(self, key: str) -> Any:
            self.read += 1
            return super().__getitem__(key)

    outputs = Counting(s={"big": "y" * 1_000_000})
    with pytest.raises(Fault, match="larger than 1048576 bytes"):
        resolve_references({"x": "${steps.s.output.big}${steps.s.output}" * 20_000}, outputs, 1_048_576)
    assert outputs.read == 1


def test_outputs_over_the_size_limit_are_not_stored_and_reading_them_fails() -> None:
    outputs = Outputs({"a": '"12345678"'}, 30)
    assert (outputs.add("b", "123456789012345678901"), outputs.add("c", "1234"), outputs.add("d", [])) == (
        None,
        '"1234"',
        "[]",
    )
    assert (outputs["a"], outputs["c"], list(outputs)) == ("12345678", "1234", ["a", "b", "c", "d"])
    for refused in (
        lambda: resolve_references({"x": "${steps.b.output}"}, outputs, MAX_BYTES),
        lambda: is_met(StepCondition("b", "", 1), outputs),
    ):
        with pytest.raises(Fault, match="step 'b' was not stored: the limit is 30 bytes per run") as caught:
            refused()
        assert caught.value.kind is Kind.TOO_LARGE
    again = Outputs({"a": '"12345678"', "b": None, "c": '"1234"', "d": "[]"}, 30)
    assert (again.add("e", "1234567890"), again.add("f", "1234567890")) == ('"1234567890"', None)


@pytest.mark.parametrize(
    ("result", "output"),
    [
        ({"structuredContent": {"runId": "r", "output": {"a": 1}, "diff": None}}, {"a": 1}),
        ({"structuredContent": {"a": 1}}, {"a": 1}),
        ({"content": [{"type": "text", "text": "hi"}, {"type": "image"}]}, {"text": "hi"}),
    ],
)
def test_output_is_extracted_from_every_result_form(result: dict[str, Any], output: Any) -> None:
    assert extract_output(result) == output


def test_error_result_becomes_a_fault_with_its_message() -> None:
    error = {"kind": "denied", "message": "no", "retryable": False}
    with pytest.raises(Fault, match="no") as caught:
        extract_output({"isError": True, "structuredContent": {"ok": False, "error": error}})
    assert caught.value.kind.value == "denied"
    with pytest.raises(Fault, match="broken"):
        extract_output({"isError": True, "content": [{"type": "text", "text": "broken"}]})
