"""The error model: every refusal and failure is a `Fault`; `TABLE` maps each kind to HTTP and JSON-RPC codes.

`kind` is a closed set with the same meaning for every backend; `code` is the stable code of a backend's own contract.
Every package raises `Fault`; only `gateway.protocol.responses` and `gateway.edge.error_response` render it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final


class Kind(StrEnum):
    """The thirteen kinds of error."""

    INVALID_INPUT = "invalid_input"
    TOO_LARGE = "too_large"
    UNAUTHENTICATED = "unauthenticated"
    DENIED = "denied"
    APPROVAL_REQUIRED = "approval_required"
    NOT_FOUND = "not_found"
    ILLEGAL_STATE = "illegal_state"
    RATE_LIMITED = "rate_limited"
    UNSUPPORTED = "unsupported"
    UNAVAILABLE = "unavailable"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    INTERNAL = "internal"


@dataclass(frozen=True, slots=True)
class ErrorMapping:
    """HTTP status, JSON-RPC code in each era, category and default retryability of one kind."""

    http: int
    handshake: int
    modern: int
    category: str
    retryable: bool = False


# The handshake column has the error codes that clients of the shipped modules rely on. 2026-07-28 reserves
# -32099 to -32020, so the modern column uses the HTTP status instead.
TABLE: Final[Mapping[Kind, ErrorMapping]] = MappingProxyType(
    {
        Kind.INVALID_INPUT: ErrorMapping(400, -32602, -32602, "client"),
        Kind.TOO_LARGE: ErrorMapping(413, -32602, -32602, "client"),
        Kind.UNAUTHENTICATED: ErrorMapping(401, -32043, 401, "policy"),
        Kind.DENIED: ErrorMapping(403, -32043, 403, "policy"),
        Kind.APPROVAL_REQUIRED: ErrorMapping(403, -32043, 403, "policy"),
        Kind.NOT_FOUND: ErrorMapping(404, -32044, 404, "client"),
        Kind.ILLEGAL_STATE: ErrorMapping(409, -32043, 409, "client"),
        Kind.RATE_LIMITED: ErrorMapping(429, -32043, 429, "policy", retryable=True),
        Kind.UNSUPPORTED: ErrorMapping(501, -32041, 501, "runtime"),
        Kind.UNAVAILABLE: ErrorMapping(503, -32603, 503, "platform", retryable=True),
        Kind.TIMEOUT: ErrorMapping(504, -32603, 504, "runtime", retryable=True),
        Kind.CANCELLED: ErrorMapping(499, -32800, 499, "client"),
        Kind.INTERNAL: ErrorMapping(500, -32603, -32603, "runtime"),
    }
)


class Fault(Exception):
    """A refusal or failure that a client may read: `message` never holds exception text, paths or secrets.

    The cause, if any, is chained (`raise Fault(...) from exc`) and reaches only the log.
    """

    def __init__(
        self,
        kind: Kind,
        message: str,
        *,
        code: str | None = None,
        details: Mapping[str, Any] | None = None,
        retryable: bool | None = None,
        suggested_fix: str | None = None,
        retry_after: float | None = None,
        category: str | None = None,
        stage: str | None = None,
    ) -> None:
        super().__init__(message)
        mapping = TABLE[kind]
        self.kind = kind
        self.message = message
        self.code = code
        self.details = dict(details) if details else {}
        self.retryable = mapping.retryable if retryable is None else retryable
        self.suggested_fix = suggested_fix
        self.retry_after = retry_after
        self.category = category or mapping.category
        self.stage = stage
        self.headers: tuple[tuple[bytes, bytes], ...] = ()
        """HTTP response headers to send in addition to `Retry-After`."""

    def as_object(self, *, correlation_id: str, origin: str, stage: str, codes: Mapping[Kind, str]) -> dict[str, Any]:
        """Return the error object, which has the same shape wherever it appears. `codes` are the backend's own."""
        details = {key: value for key, value in self.details.items() if key not in _TOP_LEVEL_DETAILS}
        error: dict[str, Any] = {
            "kind": self.kind.value,
            "code": self.code or codes.get(self.kind) or self.kind.value.upper(),
            "category": self.category,
            "message": self.message,
            "retryable": self.retryable,
            "correlation_id": correlation_id,
            "origin": origin,
            "stage": self.stage or stage,
            "details": details,
        }
        error |= {key: self.details[key] for key in _TOP_LEVEL_DETAILS if self.details.get(key) is not None}
        if self.suggested_fix is not None:
            error["suggested_fix"] = self.suggested_fix
        if self.retry_after is not None:
            error["retry_after"] = self.retry_after
        return error


_TOP_LEVEL_DETAILS: Final = ("validation_path", "validation_rule", "payload_bytes", "max_bytes")


class UnknownName(Fault):
    """No such tool, prompt or resource in the caller's view; raised for hidden and unknown names alike."""

    def __init__(self, message: str, *, uri: str | None = None) -> None:
        super().__init__(Kind.NOT_FOUND, message, details={"uri": uri} if uri is not None else None)
        self.uri = uri


class ForeignError(Exception):
    """A JSON-RPC error returned by a backend. It reaches the client unchanged."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data
