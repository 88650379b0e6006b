"""The error codes of the launch contract, the rendering of errors and constructors for common faults."""

import re
from collections.abc import Mapping
from typing import Any, Final

from gateway.contract import Json
from gateway.errors import Fault, Kind

CODES: Final[Mapping[Kind, str]] = {
    Kind.INVALID_INPUT: "INVALID_INPUT",
    Kind.TOO_LARGE: "INVALID_INPUT",
    Kind.NOT_FOUND: "RUN_NOT_FOUND",
    Kind.ILLEGAL_STATE: "ILLEGAL_STATE",
    Kind.UNSUPPORTED: "TOOLCHAIN_MISSING",
    Kind.TIMEOUT: "TOOL_TIMEOUT",
    Kind.CANCELLED: "CANCELLED",
    Kind.INTERNAL: "INTERNAL",
}

RUN_ID: Final = re.compile(r"[A-Za-z0-9_-]{8,64}", re.ASCII)

_AFTER_FAILURE: Final = (
    "Read the artifact failure_summary.md, and start a run with a new idempotency_key; the same key returns this run."
)

# The kind of each error code that a work item may report.
KIND_BY_CODE: Final[Mapping[str, Kind]] = {
    "INVALID_INPUT": Kind.INVALID_INPUT,
    "SCHEMA_VALIDATION_FAILED": Kind.INVALID_INPUT,
    "TOOLCHAIN_MISSING": Kind.UNSUPPORTED,
    "ALLOWED_PATHS_VIOLATION": Kind.DENIED,
    "COMMIT_SERVICE_ERROR": Kind.UNAVAILABLE,
    "REPO_NOT_FOUND": Kind.NOT_FOUND,
    "FIX_EXHAUSTED": Kind.ILLEGAL_STATE,
    "TOOL_TIMEOUT": Kind.TIMEOUT,
}


def render_error(error: Json, tool: str, arguments: Json) -> Json:
    """Build the standard error object, with `run_id` if the call or the error names a run."""
    details: Json = error["details"]
    if error["kind"] == Kind.INTERNAL:
        error = {**error, "details": {"cause_class": "GatewayFault", **details}}
    result: Json = {"ok": False, "error": error}
    run_id: Any = details.get("run_id", arguments.get("run_id"))
    if isinstance(run_id, str) and RUN_ID.fullmatch(run_id):
        result["run_id"] = run_id
    return result


def run_not_found(run_id: str) -> Fault:
    details = {"run_id": run_id} if RUN_ID.fullmatch(run_id) else None
    return Fault(Kind.NOT_FOUND, "There is no such run.", code="RUN_NOT_FOUND", details=details)


def illegal_state(run_id: str, current: str, message: str, **details: Any) -> Fault:
    known = {"run_id": run_id, "current_state": current, **details}
    fix = _AFTER_FAILURE if current == "FAILED" else None
    return Fault(Kind.ILLEGAL_STATE, message, code="ILLEGAL_STATE", details=known, suggested_fix=fix)


def cancelled(run_id: str) -> Fault:
    return Fault(Kind.CANCELLED, "The run was cancelled.", code="CANCELLED", details={"run_id": run_id})


def internal(exc: BaseException) -> Fault:
    return Fault(Kind.INTERNAL, "The launch backend failed.", details={"cause_class": type(exc).__name__})
