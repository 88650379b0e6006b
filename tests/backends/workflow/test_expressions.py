"""Conditions and references over whatever JSON a step may give."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.workflow.attempt import output_of
from backends.workflow.definition import When
from backends.workflow.expressions import at_path, filled, holds
from backends.workflow.outputs import Outputs
from gateway.errors import Fault, Kind

ROOM = 1_048_576
KEYS = st.text("abc", min_size=1, max_size=3)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=12,
)


@settings(max_examples=25, deadline=None)
@given(st.lists(KEYS, max_size=4), JSON)
def test_a_value_is_found_where_it_was_put_and_equals_itself(path: list[str], value: Any) -> None:
    nested = value
    for key in reversed(path):
        nested = {key: nested}
    assert at_path(nested, ".".join(path)) is value
    assert holds(When("s", ".".join(path), json.loads(json.dumps(value))), {"s": nested})


@settings(max_examples=25, deadline=None)
@given(JSON, JSON)
def test_equality_is_that_of_json(one: Any, other: Any) -> None:
    alike = one == other and json.dumps(one, sort_keys=True).lower() == json.dumps(other, sort_keys=True).lower()
    if alike:
        assert holds(When("s", "", other), {"s": one})
    elif one != other:
        assert not holds(When("s", "", other), {"s": one})


@pytest.mark.parametrize(
    ("one", "other", "equal"), [(1, 1.0, True), (1, True, False), (None, False, False), ("1", 1, False)]
)
def test_numbers_are_one_kind_and_nothing_else_is(one: Any, other: Any, equal: bool) -> None:
    assert holds(When("s", "", other), {"s": one}) is equal


@settings(max_examples=25, deadline=None)
@given(st.dictionaries(KEYS, JSON.filter(lambda value: "${" not in json.dumps(value))))
def test_arguments_without_references_stay_as_they_are(arguments: dict[str, Any]) -> None:
    assert filled(arguments, {}, ROOM) == arguments


@settings(max_examples=25, deadline=None)
@given(JSON)
def test_a_reference_that_is_the_whole_text_keeps_the_type(value: Any) -> None:
    assert filled({"x": ["${steps.s.output.v}"]}, {"s": {"v": value}}, ROOM) == {"x": [value]}


@pytest.mark.parametrize("reference", ["${steps.t.output}", "${steps.s.output.x}", "<${steps.s.output.v.w}>"])
def test_a_reference_to_nothing_is_refused(reference: str) -> None:
    with pytest.raises(Fault, match="leads to nothing"):
        filled({"x": reference}, {"s": {"v": 1}}, ROOM)


@pytest.mark.parametrize(
    "given", [["${steps.s.output}"] * 11, {"x": "${steps.s.output}" * 11}, "é${steps.s.output}" * 11]
)
def test_what_is_put_in_is_counted_each_time_that_it_is_named(given: Any) -> None:
    """Ten times a hundred bytes is as much as may be; the eleventh is refused, in whatever shape it is named."""
    outputs = {"s": "é" * 50}
    fitting = given[:10] if isinstance(given, list) else "<${steps.s.output}>" * 10
    assert json.dumps(filled({"x": fitting}, outputs, 1000), ensure_ascii=False).count("é") == 500
    with pytest.raises(Fault) as caught:
        filled({"x": given}, outputs, 1000)
    assert caught.value.kind is Kind.TOO_LARGE
    assert caught.value.details == {"payload_bytes": 1100, "max_bytes": 1000}


def test_a_short_text_that_stands_for_terabytes_costs_nothing() -> None:
    class Counting(dict[str, Any]):
        read = 0

        def __getitem__(self, key: str) -> Any:
            self.read += 1
            return super().__getitem__(key)

    outputs = Counting(s={"big": "y" * 1_000_000})
    with pytest.raises(Fault, match="larger than 1048576 bytes"):
        filled({"x": "${steps.s.output.big}${steps.s.output}" * 20_000}, outputs, 1_048_576)
    assert outputs.read == 1


def test_a_run_keeps_what_fits_and_says_what_did_not() -> None:
    outputs = Outputs({"a": '"12345678"'}, 30)
    assert (outputs.add("b", "123456789012345678901"), outputs.add("c", "1234"), outputs.add("d", [])) == (
        None,
        '"1234"',
        "[]",
    )
    assert (outputs["a"], outputs["c"], list(outputs)) == ("12345678", "1234", ["a", "b", "c", "d"])
    for refused in (
        lambda: filled({"x": "${steps.b.output}"}, outputs, ROOM),
        lambda: holds(When("b", "", 1), outputs),
    ):
        with pytest.raises(Fault, match="step 'b' was not kept: a run keeps 30 bytes") as caught:
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
def test_the_output_of_any_tool_is_found(result: dict[str, Any], output: Any) -> None:
    assert output_of(result) == output


def test_a_failed_result_is_a_fault_with_its_own_words() -> None:
    error = {"kind": "denied", "message": "no", "retryable": False}
    with pytest.raises(Fault, match="no") as caught:
        output_of({"isError": True, "structuredContent": {"ok": False, "error": error}})
    assert caught.value.kind.value == "denied"
    with pytest.raises(Fault, match="broken"):
        output_of({"isError": True, "content": [{"type": "text", "text": "broken"}]})
