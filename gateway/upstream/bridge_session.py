"""One Studio as the bridge knows it, and the lines that it and the gateway exchange."""

import asyncio
import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import msgspec

from gateway.contract import Caller, Json
from gateway.errors import Fault, Kind

_SEEN: Final = 10.0
_UNGREETED: Final = ("authentication required", "bridge.hello required")

Who = tuple[str, str]
"""Tenant and credential: a session is of its own key only."""
State = Literal["new", "authenticating", "greeting", "ready", "refused"]


@dataclass(eq=False, slots=True)
class BridgeSession:
    """One Studio, from the time it connected until it leaves, is replaced, or is not heard of."""

    id: str
    namespace: str
    caller: Caller
    name: str
    connected_at: float
    last_seen: float
    state: State = "new"
    expects: str = ""
    """The request id of the handshake's step under way."""
    greeted_at: float = 0.0
    polls: int = 0
    polled: int = 0
    closed: bool = False
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
    def who(self) -> Who:
        return whose(self.caller)

    @property
    def home(self) -> tuple[str, str, str, str]:
        """What the next session of the same Studio has in common with this one."""
        return (self.namespace, *self.who, self.name)

    @contextmanager
    def polling(self, clock: Callable[[], float]) -> Generator[None]:
        self.polls += 1
        self.polled += 1
        self.last_seen = clock()
        try:
            yield
        finally:
            self.polls -= 1
            self.last_seen = clock()

    def succeeded(self, now: float) -> None:
        self.last_success_at, self.failures = now, 0

    def failed(self, now: float, message: str) -> None:
        self.last_failure_at, self.last_failure = now, message
        self.failures += 1

    def shown(self, now: float) -> Json:
        return {
            "id": self.id,
            "name": self.name,
            "owner": self.caller.subject,
            "connected": self.state == "ready" and (self.polls > 0 or now - self.last_seen < _SEEN),
            "state": self.state,
            "polling": self.polls > 0,
            "connected_at": self.connected_at,
            "last_seen": self.last_seen,
            "capabilities": self.capabilities,
            "last_success_at": self.last_success_at,
            "last_failure_at": self.last_failure_at,
            "last_failure_message": self.last_failure,
            "consecutive_failures": self.failures,
        }


def whose(caller: Caller) -> Who:
    return caller.tenant, caller.credential


def parse(line: str) -> Json:
    try:
        answer = msgspec.json.decode(line, type=_Answer)
    except (msgspec.DecodeError, RecursionError) as exc:
        raise Fault(Kind.INVALID_INPUT, "That line is not an answer.") from exc
    if not answer.success and answer.error is None:
        raise Fault(Kind.INVALID_INPUT, "A failed answer needs an error with code and message.")
    return msgspec.to_builtins(answer)


class _Error(msgspec.Struct):
    code: str
    message: str
    retryable: bool = False
    details: Any = None


class _Answer(msgspec.Struct):
    requestId: str
    success: bool
    payload: Any = None
    error: _Error | None = None


def wants_greeting(answer: Json) -> bool:
    error = answer.get("error")
    return error is not None and error["code"] == "ACCESS_DENIED" and error["message"].startswith(_UNGREETED)


def as_line(message: Json) -> str:
    return json.dumps(message, separators=(",", ":"))
