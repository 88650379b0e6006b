"""The state of one bridge session, and the message lines that the Studio and the gateway exchange."""

import asyncio
import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import msgspec

from gateway.contract import Caller, Json
from gateway.errors import Fault, Kind

_CONNECTED_SECONDS: Final = 10.0
_HANDSHAKE_REQUIRED: Final = ("authentication required", "bridge.hello required")

SessionOwner = tuple[str, str]
"""Tenant and credential: a session can be used only with the key that opened it."""
State = Literal["new", "authenticating", "greeting", "ready", "refused"]


@dataclass(eq=False, slots=True)
class BridgeSession:
    """One Studio's session, until the Studio closes it, replaces it, or stops polling."""

    id: str
    namespace: str
    caller: Caller
    name: str
    connected_at: float
    last_seen: float
    state: State = "new"
    expected_request_id: str = ""
    """The request id of the current handshake step."""
    handshake_started_at: float = 0.0
    active_polls: int = 0
    poll_count: int = 0
    is_closed: bool = False
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    capabilities: list[str] = field(default_factory=list[str])
    protocol: str | None = None
    last_success_at: float | None = None
    last_failure_at: float | None = None
    last_failure: str | None = None
    failures: int = 0

    @property
    def queue(self) -> str:
        return f"bridge:{self.caller.tenant}:{self.id}"

    @property
    def owner(self) -> SessionOwner:
        return session_owner(self.caller)

    @property
    def studio_key(self) -> tuple[str, str, str, str]:
        """Namespace, tenant, credential and name: equal for successive sessions of the same Studio."""
        return (self.namespace, *self.owner, self.name)

    @contextmanager
    def polling(self, clock: Callable[[], float]) -> Generator[None]:
        self.active_polls += 1
        self.poll_count += 1
        self.last_seen = clock()
        try:
            yield
        finally:
            self.active_polls -= 1
            self.last_seen = clock()

    def record_success(self, now: float) -> None:
        self.last_success_at, self.failures = now, 0

    def record_failure(self, now: float, message: str) -> None:
        self.last_failure_at, self.last_failure = now, message
        self.failures += 1

    def describe(self, now: float) -> Json:
        return {
            "id": self.id,
            "name": self.name,
            "owner": self.caller.subject,
            "connected": self.state == "ready" and (self.active_polls > 0 or now - self.last_seen < _CONNECTED_SECONDS),
            "state": self.state,
            "polling": self.active_polls > 0,
            "connected_at": self.connected_at,
            "last_seen": self.last_seen,
            "capabilities": self.capabilities,
            "last_success_at": self.last_success_at,
            "last_failure_at": self.last_failure_at,
            "last_failure_message": self.last_failure,
            "consecutive_failures": self.failures,
        }


def session_owner(caller: Caller) -> SessionOwner:
    return caller.tenant, caller.credential


def parse_response(line: str) -> Json:
    try:
        response = msgspec.json.decode(line, type=_Response)
    except (msgspec.DecodeError, RecursionError) as exc:
        raise Fault(Kind.INVALID_INPUT, "The line is not a valid response.") from exc
    if not response.success and response.error is None:
        raise Fault(Kind.INVALID_INPUT, "A failed response needs an error with code and message.")
    return msgspec.to_builtins(response)


class _Error(msgspec.Struct):
    code: str
    message: str
    retryable: bool = False
    details: Any = None


class _Response(msgspec.Struct):
    requestId: str
    success: bool
    payload: Any = None
    error: _Error | None = None


def requires_handshake(response: Json) -> bool:
    error = response.get("error")
    return error is not None and error["code"] == "ACCESS_DENIED" and error["message"].startswith(_HANDSHAKE_REQUIRED)


def encode_line(message: Json) -> str:
    return json.dumps(message, separators=(",", ":"))
