"""The sessions that this worker holds: a handshake each, answers matched by request id, late ones dropped.

A session's id names its worker, so that any other knows whom to ask for it.
"""

import asyncio
import itertools
import secrets
import time
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, cast

from gateway.contract import Bus, Caller, Json
from gateway.errors import Fault, Kind
from gateway.upstream.bridge_session import BridgeSession, Who, parse, wants_greeting

AUTH: Final = "bridge.auth"
_PROTOCOL: Final = "1.1"
_IDLE: Final = 300.0
CUT: Final = 2.0
"""How long a Studio whose connection broke may take to come back before its calls are given up."""
_GREETING: Final = 5.0
_NO_HELLO: Final = frozenset({"NOT_FOUND", "UNIMPLEMENTED"})


@dataclass(eq=False, slots=True)
class _Pending:
    session: BridgeSession
    until: float
    """When whoever asked gives up, on the loop's clock."""
    answer: "asyncio.Future[Json]"
    delivered: bool = False


class LocalBridgeSessions:
    """Every session of this worker, for every backend that has a bridge.

    `changed` hears of a session that came or became another, and of one that is gone (`closed`).
    """

    def __init__(
        self,
        bus: Bus,
        *,
        cut: float = CUT,
        clock: Callable[[], float] = time.time,
        changed: Callable[[BridgeSession], None] = lambda _: None,
    ) -> None:
        self._bus = bus
        self._cut = cut
        self._clock = clock
        self._changed = changed
        self._sessions: dict[str, BridgeSession] = {}
        self._pending: dict[str, _Pending] = {}
        self._numbers = itertools.count(1)

    def __iter__(self) -> "itertools.chain[BridgeSession]":
        self._sweep()
        return itertools.chain(self._sessions.values())

    def counts(self) -> Counter[str]:
        return Counter(session.namespace for session in self._sessions.values())

    def now(self) -> float:
        return self._clock()

    # ---- what a Studio does ----

    def open(self, namespace: str, caller: Caller, name: str) -> BridgeSession:
        now = self._clock()
        id = f"{self._bus.worker}.{secrets.token_urlsafe(18)}"
        session = self._sessions[id] = BridgeSession(id, namespace, caller, name, now, now)
        return session

    async def read(self, who: Who, session_id: str, timeout: float) -> Json | None:
        """The next message for the Studio; None when there is none in time. Raises `Fault(NOT_FOUND)`.

        One whose operation is `AUTH` lacks the token, which is nobody's but the Studio's: whoever hands it out adds
        what that very request brought.
        """
        session = self.get(who, session_id)
        with session.polling(self._clock):
            if session.state == "new" or (session.state == "authenticating" and self._greeting_lost(session)):
                return self._challenge(session)
            if session.state == "greeting" and self._greeting_lost(session):
                return self._hello(session)
            message = await self._next(session, timeout)
        if session.closed:
            raise unknown()
        return message

    async def write(self, who: Who, session_id: str, line: str) -> None:
        """An answer of the Studio. Raises `Fault`: NOT_FOUND, or INVALID_INPUT for what is no answer."""
        session = self.get(who, session_id)
        session.last_seen = self._clock()
        answer = parse(line)
        if answer["requestId"] == session.expects:
            await self._greeted(session, answer)
            return
        pending = self._pending.get(answer["requestId"])
        # Only the Studio that was asked may answer; whatever comes late is dropped.
        if pending is not None and pending.session is session and not pending.answer.done():
            pending.answer.set_result(answer)

    async def end(self, sessions: Collection[BridgeSession], reason: str) -> None:
        for session in sessions:
            self._forget(session, reason)
            await self._wake(session)

    def cut(self, session_id: str) -> None:
        """The Studio's connection broke while it waited for a line."""
        session = self._sessions.get(session_id)
        if session is not None:
            asyncio.get_running_loop().call_later(self._cut, self._give_up, session, session.polled)

    async def give_back(self, message: Json) -> None:
        """A message that was read and reached nobody: the next one's who reads."""
        pending = self._pending.get(message["requestId"])
        if pending is not None:
            pending.delivered = False
            left = pending.until - asyncio.get_running_loop().time()
            await self._bus.push(pending.session.queue, message, max(left, 0.0))

    def _give_up(self, session: BridgeSession, polled: int) -> None:
        if session.polled == polled and not session.polls and not session.closed:
            self._forget(session, "The Studio's connection was lost.")

    async def _next(self, session: BridgeSession, timeout: float) -> Json | None:
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

    def _challenge(self, session: BridgeSession) -> Json:
        session.state, session.greeted_at = "authenticating", self._clock()
        request = self._message(AUTH, {"clientName": "gatehouse"})
        session.expects = request["requestId"]
        return request

    def _hello(self, session: BridgeSession) -> Json:
        session.state, session.greeted_at = "greeting", self._clock()
        request = self._message("bridge.hello", {"protocolVersion": _PROTOCOL, "clientName": "gatehouse"})
        session.expects = request["requestId"]
        return request

    def _greeting_lost(self, session: BridgeSession) -> bool:
        return self._clock() - session.greeted_at > _GREETING

    async def _greeted(self, session: BridgeSession, answer: Json) -> None:
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
        self._changed(session)

    # ---- what a backend does ----

    async def request(self, session: BridgeSession, payload: Json, timeout: float) -> Json:
        """Raises `Fault`: UNAVAILABLE when the Studio is gone or never fetched it, TIMEOUT when it gave no answer."""
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

    async def _ask(self, session: BridgeSession, payload: Json, timeout: float) -> Json:
        loop = asyncio.get_running_loop()
        request = self._message(str(payload["operation"]), payload.get("payload") or {}, payload)
        pending = _Pending(session, loop.time() + timeout, loop.create_future())
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
            raise unavailable(f"The Studio did not fetch the request within {timeout:g} s.") from exc
        finally:
            del self._pending[request["requestId"]]

    def _message(self, operation: str, payload: Json, given: Json | None = None) -> Json:
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

    def get(self, who: Who, session_id: str) -> BridgeSession:
        """Raises `Fault(NOT_FOUND)` for one that is not there, and for another's."""
        session = self._sessions.get(session_id)
        if session is None or session.who != who:
            raise unknown()
        return session

    def _sweep(self) -> None:
        now = self._clock()
        for session in [each for each in self._sessions.values() if not each.polls and now - each.last_seen > _IDLE]:
            self._forget(session, "The Studio was not heard of for too long.")

    async def _wake(self, session: BridgeSession) -> None:
        """End the polls that wait, so that the Studio comes back at once."""
        for _ in range(session.polls):
            await self._bus.push(session.queue, {"wake": True}, _GREETING)

    def _forget(self, session: BridgeSession, reason: str) -> None:
        if session.closed:
            return
        session.closed = True
        del self._sessions[session.id]
        for pending in self._pending.values():
            if pending.session is session and not pending.answer.done():
                pending.answer.set_exception(unavailable(reason))
        self._changed(session)


def unknown() -> Fault:
    return Fault(Kind.NOT_FOUND, "No such session; open a new one.")


def unavailable(message: str) -> Fault:
    return Fault(Kind.UNAVAILABLE, message, retryable=False, category="platform")
