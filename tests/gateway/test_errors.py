"""Faults, and the object that shows one."""

import pytest

from gateway.errors import TABLE, Fault, ForeignError, Kind, UnknownName


def shown(fault: Fault, **words: str) -> dict[str, object]:
    return fault.as_object(
        correlation_id="c", origin="gateway", stage="limit", words={Kind(key): word for key, word in words.items()}
    )


@pytest.mark.parametrize("kind", list(Kind))
def test_a_fault_knows_the_ways_of_its_kind(kind: Kind) -> None:
    fault = Fault(kind, "In words.")
    assert (fault.retryable, fault.category) == (TABLE[kind].retryable, TABLE[kind].category)
    assert str(fault) == "In words."
    assert shown(fault)["kind"] == kind.value


def test_the_object_has_the_same_members_wherever_it_appears() -> None:
    plain = shown(Fault(Kind.DENIED, "No."))
    assert plain == {
        "kind": "denied",
        "code": "DENIED",
        "category": "policy",
        "message": "No.",
        "retryable": False,
        "correlation_id": "c",
        "origin": "gateway",
        "stage": "limit",
        "details": {},
    }
    more = shown(Fault(Kind.DENIED, "No.", suggested_fix="Ask.", retry_after=2.0, stage="guard", retryable=True))
    assert more == {**plain, "suggested_fix": "Ask.", "retry_after": 2.0, "stage": "guard", "retryable": True}


def test_the_code_is_the_faults_own_or_the_contracts_or_the_kind() -> None:
    assert shown(Fault(Kind.NOT_FOUND, "x"))["code"] == "NOT_FOUND"
    assert shown(Fault(Kind.NOT_FOUND, "x"), not_found="E_GONE")["code"] == "E_GONE"
    assert shown(Fault(Kind.NOT_FOUND, "x", code="RUN_GONE"), not_found="E_GONE")["code"] == "RUN_GONE"


def test_details_are_a_copy_and_lose_what_stands_at_the_top() -> None:
    given = {"validation_path": "input.a", "max_bytes": 0, "validation_rule": None, "other": 1}
    fault = Fault(Kind.INVALID_INPUT, "x", details=given)
    seen = shown(fault)
    assert (seen["validation_path"], seen["max_bytes"], seen["details"]) == ("input.a", 0, {"other": 1})
    assert "validation_rule" not in seen
    fault.details["more"] = 1
    assert "more" not in given


def test_the_table_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        TABLE[Kind.DENIED] = TABLE[Kind.INTERNAL]  # type: ignore[index]


def test_an_unknown_name_is_not_found_and_names_its_uri() -> None:
    assert (UnknownName("x").kind, UnknownName("x").details) == (Kind.NOT_FOUND, {})
    assert UnknownName("x", uri="a:b").details == {"uri": "a:b"}


def test_a_foreign_error_keeps_code_message_and_data() -> None:
    error = ForeignError(7, "x", {"a": 1})
    assert (error.code, error.message, error.data, str(error)) == (7, "x", {"a": 1}, "x")
