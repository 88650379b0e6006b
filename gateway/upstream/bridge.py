"""Studios and editors that connect from outside: a session each, answers matched by request id, late ones dropped.

Sessions are the worker's own. What goes to a Studio waits in a queue of the bus, and an answer finds the worker that
its request id names, so that sessions may be shared once there are several workers.
"""

import asyncio
import itertools
import secrets
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, cast

from gateway.contract import Bus, Caller, Here, Json
from gateway.errors import Fault, Kind
from gateway.upstream.bridge_session import Session, as_line, parse, wants_greeting
from gateway.upstream.home import HERE

PROTOCOL: Final = "1.1"
_TOPIC: Final = "bridge.answer"
_IDLE: Final = 300.0
_CUT: Final = 2.0
"""How long a Studio whose connection broke may take to come back before its calls are given up."""
_GREETING: Final = 5.0
_PER_KEY: Final = 32
_NO_HELLO: Final = frozenset({"NOT_FOUND", "UNIMPLEMENTED"})


@dataclass(eq=False, slots=True)
class _Pending:
    session: Session
    answer: "asyncio.Future[Json]"
    delivered: bool = False


class Bridges:
    """Every session of this worker, for every backend that has a bridge."""

    def __init__(self, bus: Bus, *, cut: float = _CUT, clock: Callable[[], float] = time.time) -> None:
        self._bus = bus
        self._cut = cut
        self._clock = clock
        self._sessions: dict[str, Session] = {}
        self._pending: dict[str, _Pending] = {}
        self._hearing: dict[str, list[Callable[[Json, Json], None]]] = {}
        self._numbers = itertools.count(1)
        bus.answer(_TOPIC, self._answered)

    def for_backend(self, namespace: str) -> "BackendBridge":
        return BackendBridge(self, namespace)

    # ---- what a Studio does ----

    def connected(self) -> Counter[str]:
        """How many peers of this worker each backend has."""
        return Counter(session.namespace for session in self._sessions.values())

    async def open(self, namespace: str, caller: Caller, name: str) -> str:
        """A new session's id. One of the same key and name is replaced: that Studio came back."""
        self._sweep()
        own = [each for each in self._sessions.values() if each.namespace == namespace and each.of(caller)]
        for session in [each for each in own if each.name == name] or own[: max(0, len(own) - _PER_KEY + 1)]:
            await self._end(session, "The Studio connected anew.")
        now = self._clock()
        session = Session(secrets.token_urlsafe(18), namespace, caller, name, now, now)
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
                return as_line(self._hello(session))
            message = await self._next(session, timeout)
        if session.closed:
            raise _unknown()
        return as_line(message) if message is not None else None

    async def write(self, caller: Caller, session_id: str, line: str) -> None:
        """An answer of the Studio. Raises `Fault`: NOT_FOUND, or INVALID_INPUT for what is no answer."""
        session = self._session(caller, session_id)
        session.last_seen = self._clock()
        answer = parse(line)
        request_id: str = answer["requestId"]
        if request_id == session.expects:
            await self._greeted(session, answer)
            return
        worker, _, _ = request_id.partition(".")
        message: Json = {"session": session.id, "answer": answer}
        if worker == self._bus.worker:
            await self._answered(message)
        else:
            with suppress(Fault):  # whoever asked is gone, and nobody waits for this answer
                await self._bus.ask(worker, _TOPIC, message)

    def tell(self, caller: Caller, session_id: str, event: Json) -> None:
        """What the peer says unasked. Raises `Fault(NOT_FOUND)`."""
        session = self._session(caller, session_id)
        session.last_seen = self._clock()
        peer = session.shown(session.last_seen)
        now = asyncio.get_running_loop().time()
        here = HERE.set(Here(session.caller, secrets.token_hex(8), now, {}))
        try:
            for told in list(self._hearing.get(session.namespace, ())):
                told(peer, event)
        finally:
            HERE.reset(here)

    @contextmanager
    def hearing(self, namespace: str, told: Callable[[Json, Json], None]) -> Generator[None]:
        self._hearing.setdefault(namespace, []).append(told)
        try:
            yield
        finally:
            self._hearing[namespace].remove(told)

    async def close(self, caller: Caller, session_id: str) -> None:
        await self._end(self._session(caller, session_id), "The Studio left.")

    def cut(self, session_id: str) -> None:
        """The Studio's connection broke while it waited for a line."""
        session = self._sessions.get(session_id)
        if session is not None:
            asyncio.get_running_loop().call_later(self._cut, self._give_up, session, session.polled)

    def _give_up(self, session: Session, polled: int) -> None:
        if session.polled == polled and not session.polls and not session.closed:
            self._forget(session, "The Studio's connection was lost.")

    async def _next(self, session: Session, timeout: float) -> Json | None:
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

    def _challenge(self, session: Session, token: str) -> str:
        session.state, session.greeted_at = "authenticating", self._clock()
        request = self._message("bridge.auth", {"token": token, "clientName": "gatehouse"})
        session.expects = request["requestId"]
        return as_line(request)

    def _hello(self, session: Session) -> Json:
        session.state, session.greeted_at = "greeting", self._clock()
        request = self._message("bridge.hello", {"protocolVersion": PROTOCOL, "clientName": "gatehouse"})
        session.expects = request["requestId"]
        return request

    def _greeting_lost(self, session: Session) -> bool:
        return self._clock() - session.greeted_at > _GREETING

    async def _greeted(self, session: Session, answer: Json) -> None:
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
            if wants_greeting(answer):
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

    def _of(self, namespace: str, caller: Caller) -> list[Session]:
        return [
            each
            for each in self._sessions.values()
            if each.namespace == namespace and each.caller.tenant == caller.tenant
        ]

    def _choose(self, namespace: str, caller: Caller, peer: str | None) -> Session:
        own = self._of(namespace, caller)
        if peer is not None:
            own = [session for session in own if session.id == peer]
        if not own:
            raise _unavailable("No Studio is connected.")
        return own[-1]

    async def _ask(self, session: Session, payload: Json, timeout: float) -> Json:
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

    def _session(self, caller: Caller, session_id: str) -> Session:
        session = self._sessions.get(session_id)
        if session is None or not session.of(caller):
            raise _unknown()
        return session

    def _sweep(self) -> float:
        now = self._clock()
        for session in [each for each in self._sessions.values() if not each.polls and now - each.last_seen > _IDLE]:
            self._forget(session, "The Studio was not heard of for too long.")
        return now

    async def _end(self, session: Session, reason: str) -> None:
        self._forget(session, reason)
        await self._wake(session)

    async def _wake(self, session: Session) -> None:
        """End the polls that wait, so that the Studio comes back at once."""
        for _ in range(session.polls):
            await self._bus.push(session.queue, {"wake": True}, _GREETING)

    def _forget(self, session: Session, reason: str) -> None:
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

    def hearing(self, told: Callable[[Json, Json], None]) -> AbstractContextManager[None]:
        return self._bridges.hearing(self._namespace, told)


def _unknown() -> Fault:
    return Fault(Kind.NOT_FOUND, "No such session; open a new one.")


def _unavailable(message: str) -> Fault:
    return Fault(Kind.UNAVAILABLE, message, retryable=False, category="platform")
