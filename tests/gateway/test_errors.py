"""Faults and their error object."""

import pytest

from gateway.errors import TABLE, Fault, ForeignError, Kind, UnknownName


def error_object(fault: Fault, **codes: str) -> dict[str, object]:
    return fault.as_object(
        correlation_id="c", origin="gateway", stage="limit", codes={Kind(key): code for key, code in codes.items()}
    )


@pytest.mark.parametrize("kind", list(Kind))
def test_fault_has_the_properties_of_its_kind(kind: Kind) -> None:
    fault = Fault(kind, "In words.")
    assert (fault.retryable, fault.category) == (TABLE[kind].retryable, TABLE[kind].category)
    assert str(fault) == "In words."
    assert error_object(fault)["kind"] == kind.value


def test_error_object_always_has_the_same_members() -> None:
    plain = error_object(Fault(Kind.DENIED, "No."))
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
    more = error_object(Fault(Kind.DENIED, "No.", suggested_fix="Ask.", retry_after=2.0, stage="guard", retryable=True))
    assert more == {**plain, "suggested_fix": "Ask.", "retry_after": 2.0, "stage": "guard", "retryable": True}


def test_code_is_that_of_the_fault_else_of_the_contract_else_of_the_kind() -> None:
    assert error_object(Fault(Kind.NOT_FOUND, "x"))["code"] == "NOT_FOUND"
    assert error_object(Fault(Kind.NOT_FOUND, "x"), not_found="E_GONE")["code"] == "E_GONE"
    assert error_object(Fault(Kind.NOT_FOUND, "x", code="RUN_GONE"), not_found="E_GONE")["code"] == "RUN_GONE"


def test_details_are_copied_without_top_level_members() -> None:
    details = {"validation_path": "input.a", "max_bytes": 0, "validation_rule": None, "other": 1}
    fault = Fault(Kind.INVALID_INPUT, "x", details=details)
    error = error_object(fault)
    assert (error["validation_path"], error["max_bytes"], error["details"]) == ("input.a", 0, {"other": 1})
    assert "validation_rule" not in error
    fault.details["more"] = 1
    assert "more" not in details


def test_table_is_immutable() -> None:
    with pytest.raises(TypeError):
        TABLE[Kind.DENIED] = TABLE[Kind.INTERNAL]  # type: ignore[index]


def test_unknown_name_is_not_found_with_its_uri() -> None:
    assert (UnknownName("x").kind, UnknownName("x").details) == (Kind.NOT_FOUND, {})
    assert UnknownName("x", uri="a:b").details == {"uri": "a:b"}


def test_foreign_error_keeps_code_message_and_data() -> None:
    error = ForeignError(7, "x", {"a": 1})
    assert (error.code, error.message, error.data, str(error)) == (7, "x", {"a": 1}, "x")
