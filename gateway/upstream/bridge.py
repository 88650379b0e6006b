"""Studios and editors that connect from outside: a session each, answers matched by request id, late ones dropped.

What goes to a Studio waits in a queue of the bus, and an answer goes to the worker that its request id names; so it
does not matter which worker serves the Studio's next request.
"""

import asyncio
import itertools
import json
import secrets
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Literal, cast

import msgspec

from gateway.contract import Bus, Caller, Json
from gateway.errors import Fault, Kind

PROTOCOL: Final = "1.1"
_TOPIC: Final = "bridge.answer"
_IDLE: Final = 300.0
_CUT: Final = 2.0
"""How long a Studio whose connection broke may take to come back before its calls are given up."""
_GREETING: Final = 5.0
_SEEN: Final = 10.0
_PER_KEY: Final = 32
_NO_HELLO: Final = frozenset({"NOT_FOUND", "UNIMPLEMENTED"})
_UNGREETED: Final = ("authentication required", "bridge.hello required")

State = Literal["new", "authenticating", "greeting", "ready", "refused"]


@dataclass(eq=False, slots=True)
class _Pending:
    session: "_Session"
    answer: "asyncio.Future[Json]"
    delivered: bool = False


@dataclass(eq=False, slots=True)
class _Session:
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

    def of(self, caller: Caller) -> bool:
        return (self.caller.tenant, self.caller.credential) == (caller.tenant, caller.credential)

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


class Bridges:
    """Every session of this worker, for every backend that has a bridge."""

    def __init__(self, bus: Bus, *, cut: float = _CUT, clock: Callable[[], float] = time.time) -> None:
        self._bus = bus
        self._cut = cut
        self._clock = clock
        self._sessions: dict[str, _Session] = {}
        self._pending: dict[str, _Pending] = {}
        self._numbers = itertools.count(1)
        bus.answer(_TOPIC, self._answered)

    def for_backend(self, namespace: str) -> "BackendBridge":
        return BackendBridge(self, namespace)

    # ---- what a Studio does ----

    async def open(self, namespace: str, caller: Caller, name: str) -> str:
        """A new session's id. One of the same key and name is replaced: that Studio came back."""
        self._sweep()
        own = [each for each in self._sessions.values() if each.namespace == namespace and each.of(caller)]
        for session in [each for each in own if each.name == name] or own[: max(0, len(own) - _PER_KEY + 1)]:
            await self._end(session, "The Studio connected anew.")
        now = self._clock()
        session = _Session(secrets.token_urlsafe(18), namespace, caller, name, now, now)
        self._sessions[session.id] = session
        return session.id

    async def read(self, caller: Caller, session_id: str, token: str, timeout: float) -> str | None:
        """The next line for the Studio; None when there is none in time. Raises `Fault(NOT_FOUND)`.

        `token` is the Studio's own, given back to it in the handshake and nowhere kept.
        """
        session = self._session(caller, session_id)
        with session.polling(self._clock):
            if session.state == "new" or (session.state == "authenticating" and self._greeting_lost(session)):
                return self._challenge(session, token)
            if session.state == "greeting" and self._greeting_lost(session):
                return _line(self._hello(session))
            message = await self._next(session, timeout)
        if session.closed:
            raise _unknown()
        return _line(message) if message is not None else None

    async def write(self, caller: Caller, session_id: str, line: str) -> None:
        """An answer of the Studio. Raises `Fault`: NOT_FOUND, or INVALID_INPUT for what is no answer."""
        session = self._session(caller, session_id)
        session.last_seen = self._clock()
        answer = _parse(line)
        request_id: str = answer["requestId"]
        if request_id == session.expects:
            await self._greeted(session, answer)
            return
        worker, _, _ = request_id.partition(".")
        message: Json = {"session": session.id, "answer": answer}
        if worker == self._bus.worker:
            await self._answered(message)
        else:
            await self._bus.ask(worker, _TOPIC, message)

    async def close(self, caller: Caller, session_id: str) -> None:
        await self._end(self._session(caller, session_id), "The Studio left.")

    def cut(self, session_id: str) -> None:
        """The Studio's connection broke while it waited for a line."""
        session = self._sessions.get(session_id)
        if session is not None:
            asyncio.get_running_loop().call_later(self._cut, self._give_up, session, session.polled)

    def _give_up(self, session: _Session, polled: int) -> None:
        if session.polled == polled and not session.polls and not session.closed:
            self._forget(session, "The Studio's connection was lost.")

    async def _next(self, session: _Session, timeout: float) -> Json | None:
        until = asyncio.get_running_loop().time() + timeout
        while not session.closed:
            left = until - asyncio.get_running_loop().time()
            message = await self._bus.pop(session.queue, max(left, 0.0))
            if message is None or "wake" in message:
                return None
            if message["requestId"] == session.expects:
                return message
            pending = self._pending.get(message["requestId"])
            if pending is not None:
                pending.delivered = True
                return message
            # Whoever asked has given up: the Studio must not do it now.
        return None

    # ---- the handshake ----

    def _challenge(self, session: _Session, token: str) -> str:
        session.state, session.greeted_at = "authenticating", self._clock()
        request = self._message("bridge.auth", {"token": token, "clientName": "gatehouse"})
        session.expects = request["requestId"]
        return _line(request)

    def _hello(self, session: _Session) -> Json:
        session.state, session.greeted_at = "greeting", self._clock()
        request = self._message("bridge.hello", {"protocolVersion": PROTOCOL, "clientName": "gatehouse"})
        session.expects = request["requestId"]
        return request

    def _greeting_lost(self, session: _Session) -> bool:
        return self._clock() - session.greeted_at > _GREETING

    async def _greeted(self, session: _Session, answer: Json) -> None:
        if session.state == "authenticating" and answer["success"]:
            await self._bus.push(session.queue, self._hello(session), _GREETING)
            return
        code = answer["error"]["code"] if not answer["success"] else None
        if session.state == "authenticating" or (code is not None and code not in _NO_HELLO):
            session.state = "refused"
            session.failed(self._clock(), str(answer["error"]["message"]))
            return
        # A Studio that knows no hello is an old one, and has no capabilities.
        said: Json = answer.get("payload") or {} if answer["success"] else {}
        session.protocol = said.get("protocolVersion")
        offered = cast("object", said.get("capabilities") or [])
        known = cast("list[Any]", offered) if isinstance(offered, list) else []
        session.capabilities = [str(each) for each in known][:32] if session.protocol else []
        session.state, session.expects = "ready", ""
        session.ready.set()

    # ---- what a backend does ----

    def peers(self, namespace: str, caller: Caller) -> list[Json]:
        now = self._sweep()
        return [session.shown(now) for session in self._of(namespace, caller)]

    async def request(self, namespace: str, caller: Caller, peer: str | None, payload: Json, timeout: float) -> Json:
        self._sweep()
        session = self._choose(namespace, caller, peer)
        try:
            answer = await self._ask(session, payload, timeout)
            if _wants_greeting(answer):
                # Its plugin was loaded anew under the same session.
                session.state = "new"
                session.ready.clear()
                await self._wake(session)
                answer = await self._ask(session, payload, timeout)
        except Fault as fault:
            session.failed(self._clock(), fault.message)
            raise
        session.succeeded(self._clock())
        return answer

    def _of(self, namespace: str, caller: Caller) -> list[_Session]:
        return [
            each
            for each in self._sessions.values()
            if each.namespace == namespace and each.caller.tenant == caller.tenant
        ]

    def _choose(self, namespace: str, caller: Caller, peer: str | None) -> _Session:
        own = self._of(namespace, caller)
        if peer is not None:
            own = [session for session in own if session.id == peer]
        if not own:
            raise _unavailable("No Studio is connected.")
        return own[-1]

    async def _ask(self, session: _Session, payload: Json, timeout: float) -> Json:
        pending = _Pending(session, asyncio.get_running_loop().create_future())
        request = self._message(str(payload["operation"]), payload.get("payload") or {}, payload)
        scope = asyncio.timeout(timeout)
        self._pending[request["requestId"]] = pending
        try:
            async with scope:
                await session.ready.wait()
                await self._bus.push(session.queue, request, timeout)
                return await pending.answer
        except TimeoutError as exc:
            if not scope.expired():
                raise
            if pending.delivered:
                raise Fault(Kind.TIMEOUT, f"The Studio gave no answer within {timeout:g} s.") from exc
            raise _unavailable(f"The Studio did not fetch the request within {timeout:g} s.") from exc
        finally:
            del self._pending[request["requestId"]]

    async def _answered(self, message: Json) -> Json:
        answer: Json = message["answer"]
        pending = self._pending.get(answer["requestId"])
        # Only the Studio that was asked may answer; whatever comes late is dropped.
        if pending is not None and pending.session.id == message["session"] and not pending.answer.done():
            pending.answer.set_result(answer)
        return {}

    def _message(self, operation: str, payload: Json, given: Json | None = None) -> Json:
        # The worker's name finds its way back from any other; the rest is never the same twice.
        request_id = f"{self._bus.worker}.{next(self._numbers)}.{secrets.token_hex(6)}"
        given = given or {}
        return {
            "requestId": request_id,
            "correlationId": given.get("correlationId") or request_id,
            "idempotencyKey": given.get("idempotencyKey") or request_id,
            "operation": operation,
            "timestamp": datetime.now(UTC).isoformat().replace("+00:00", "Z"),
            "payload": payload,
        }

    # ---- coming and going ----

    def _session(self, caller: Caller, session_id: str) -> _Session:
        session = self._sessions.get(session_id)
        if session is None or not session.of(caller):
            raise _unknown()
        return session

    def _sweep(self) -> float:
        now = self._clock()
        for session in [each for each in self._sessions.values() if not each.polls and now - each.last_seen > _IDLE]:
            self._forget(session, "The Studio was not heard of for too long.")
        return now

    async def _end(self, session: _Session, reason: str) -> None:
        self._forget(session, reason)
        await self._wake(session)

    async def _wake(self, session: _Session) -> None:
        """End the polls that wait, so that the Studio comes back at once."""
        for _ in range(session.polls):
            await self._bus.push(session.queue, {"wake": True}, _GREETING)

    def _forget(self, session: _Session, reason: str) -> None:
        session.closed = True
        self._sessions.pop(session.id, None)
        for pending in self._pending.values():
            if pending.session is session and not pending.answer.done():
                pending.answer.set_exception(_unavailable(reason))


@dataclass(frozen=True, slots=True)
class BackendBridge:
    """`gateway.contract.Bridge` for one backend."""

    _bridges: Bridges
    _namespace: str

    def peers(self, caller: Caller) -> list[Json]:
        return self._bridges.peers(self._namespace, caller)

    async def request(self, caller: Caller, peer: str | None, payload: Json, timeout: float) -> Json:
        """`payload` is `{operation, payload, correlationId?, idempotencyKey?}`; the answer is the Studio's message."""
        return await self._bridges.request(self._namespace, caller, peer, payload, timeout)


def _parse(line: str) -> Json:
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


def _wants_greeting(answer: Json) -> bool:
    error = answer.get("error")
    return error is not None and error["code"] == "ACCESS_DENIED" and error["message"].startswith(_UNGREETED)


def _line(message: Json) -> str:
    return json.dumps(message, ensure_ascii=False, separators=(",", ":"))


def _unknown() -> Fault:
    return Fault(Kind.NOT_FOUND, "No such session; open a new one.")


def _unavailable(message: str) -> Fault:
    return Fault(Kind.UNAVAILABLE, message, retryable=False, category="platform")
