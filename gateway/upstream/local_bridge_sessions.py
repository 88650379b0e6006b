"""Bridge sessions that this worker holds: handshake, requests and their responses.

Responses are matched by request id; late ones are dropped. A session id contains the name of its worker, so that any
worker can route to it.
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
from gateway.upstream.bridge_session import BridgeSession, SessionOwner, parse_response, requires_handshake

AUTH: Final = "bridge.auth"
_PROTOCOL: Final = "1.1"
_IDLE_SECONDS: Final = 300.0
RECONNECT_GRACE: Final = 2.0
"""How long a Studio may take to reconnect after its connection broke, before its calls fail."""
_HANDSHAKE_SECONDS: Final = 5.0
_HELLO_UNSUPPORTED: Final = frozenset({"NOT_FOUND", "UNIMPLEMENTED"})


@dataclass(eq=False, slots=True)
class _Pending:
    session: BridgeSession
    deadline: float
    """When the caller times out, on the event loop's clock."""
    response: "asyncio.Future[Json]"
    delivered: bool = False


class LocalBridgeSessions:
    """The sessions of this worker, for every backend that has a bridge.

    `on_change` is called for a session that is ready, and for one that ended (`is_closed`).
    """

    def __init__(
        self,
        bus: Bus,
        *,
        reconnect_grace: float = RECONNECT_GRACE,
        clock: Callable[[], float] = time.time,
        on_change: Callable[[BridgeSession], None] = lambda _: None,
    ) -> None:
        self._bus = bus
        self._reconnect_grace = reconnect_grace
        self._clock = clock
        self._on_change = on_change
        self._sessions: dict[str, BridgeSession] = {}
        self._pending: dict[str, _Pending] = {}
        self._numbers = itertools.count(1)

    def __iter__(self) -> "itertools.chain[BridgeSession]":
        self._sweep()
        return itertools.chain(self._sessions.values())

    def count_by_backend(self) -> Counter[str]:
        return Counter(session.namespace for session in self._sessions.values())

    def now(self) -> float:
        return self._clock()

    # ---- API for Studios ----

    def open(self, namespace: str, caller: Caller, name: str) -> BridgeSession:
        now = self._clock()
        id = f"{self._bus.worker}.{secrets.token_urlsafe(18)}"
        session = self._sessions[id] = BridgeSession(id, namespace, caller, name, now, now)
        return session

    async def read(self, owner: SessionOwner, session_id: str, timeout: float) -> Json | None:
        """Return the next message for the Studio; None after `timeout`. Raises `Fault(NOT_FOUND)`.

        An `AUTH` message does not contain the token: the caller adds the token of the Studio's own request.
        """
        session = self.get(owner, session_id)
        with session.polling(self._clock):
            if session.state == "new" or (session.state == "authenticating" and self._handshake_expired(session)):
                return self._start_authentication(session)
            if session.state == "greeting" and self._handshake_expired(session):
                return self._start_hello(session)
            message = await self._next(session, timeout)
        if session.is_closed:
            raise session_not_found()
        return message

    async def write(self, owner: SessionOwner, session_id: str, line: str) -> None:
        """Handle a response line of the Studio. Raises `Fault`: NOT_FOUND, or INVALID_INPUT if it is malformed."""
        session = self.get(owner, session_id)
        session.last_seen = self._clock()
        response = parse_response(line)
        if response["requestId"] == session.expected_request_id:
            await self._continue_handshake(session, response)
            return
        pending = self._pending.get(response["requestId"])
        # Only the Studio that got the request may answer it; late responses are dropped.
        if pending is not None and pending.session is session and not pending.response.done():
            pending.response.set_result(response)

    async def end(self, sessions: Collection[BridgeSession], reason: str) -> None:
        for session in sessions:
            self._remove(session, reason)
            await self._wake_polls(session)

    def connection_lost(self, session_id: str) -> None:
        """The Studio's connection broke while it polled: end the session unless it polls again in time."""
        session = self._sessions.get(session_id)
        if session is not None:
            asyncio.get_running_loop().call_later(self._reconnect_grace, self._expire, session, session.poll_count)

    async def requeue(self, message: Json) -> None:
        """Put back a message that was read but not delivered, for the next poll."""
        pending = self._pending.get(message["requestId"])
        if pending is not None:
            pending.delivered = False
            remaining = pending.deadline - asyncio.get_running_loop().time()
            await self._bus.push(pending.session.queue, message, max(remaining, 0.0))

    def _expire(self, session: BridgeSession, poll_count: int) -> None:
        if session.poll_count == poll_count and not session.active_polls and not session.is_closed:
            self._remove(session, "The Studio's connection was lost.")

    async def _next(self, session: BridgeSession, timeout: float) -> Json | None:
        deadline = asyncio.get_running_loop().time() + timeout
        while not session.is_closed:
            remaining = deadline - asyncio.get_running_loop().time()
            message = await self._bus.pop(session.queue, max(remaining, 0.0))
            if message is None or "wake" in message:
                return None
            if message["requestId"] == session.expected_request_id:
                return message
            pending = self._pending.get(message["requestId"])
            if pending is not None:
                pending.delivered = True
                return message
            # The caller has timed out: the Studio must not execute the request now.
        return None

    # ---- handshake ----

    def _start_authentication(self, session: BridgeSession) -> Json:
        session.state, session.handshake_started_at = "authenticating", self._clock()
        request = self._message(AUTH, {"clientName": "gatehouse"})
        session.expected_request_id = request["requestId"]
        return request

    def _start_hello(self, session: BridgeSession) -> Json:
        session.state, session.handshake_started_at = "greeting", self._clock()
        request = self._message("bridge.hello", {"protocolVersion": _PROTOCOL, "clientName": "gatehouse"})
        session.expected_request_id = request["requestId"]
        return request

    def _handshake_expired(self, session: BridgeSession) -> bool:
        return self._clock() - session.handshake_started_at > _HANDSHAKE_SECONDS

    async def _continue_handshake(self, session: BridgeSession, response: Json) -> None:
        if session.state == "authenticating" and response["success"]:
            await self._bus.push(session.queue, self._start_hello(session), _HANDSHAKE_SECONDS)
            return
        code = response["error"]["code"] if not response["success"] else None
        if session.state == "authenticating" or (code is not None and code not in _HELLO_UNSUPPORTED):
            session.state = "refused"
            session.record_failure(self._clock(), str(response["error"]["message"]))
            return
        # An old plugin does not support `bridge.hello` and has no capabilities.
        hello: Json = response.get("payload") or {} if response["success"] else {}
        session.protocol = hello.get("protocolVersion")
        offered = cast("object", hello.get("capabilities") or [])
        names = cast("list[Any]", offered) if isinstance(offered, list) else []
        session.capabilities = [str(each) for each in names][:32] if session.protocol else []
        session.state, session.expected_request_id = "ready", ""
        session.ready.set()
        self._on_change(session)

    # ---- API for backends ----

    async def request(self, session: BridgeSession, payload: Json, timeout: float) -> Json:
        """Send a request and return the response.

        Raises `Fault`: UNAVAILABLE when the Studio disconnected or did not fetch the request, TIMEOUT when it did not
        answer it.
        """
        try:
            response = await self._request_once(session, payload, timeout)
            if requires_handshake(response):
                # The Studio reloaded its plugin within the same session.
                session.state = "new"
                session.ready.clear()
                await self._wake_polls(session)
                response = await self._request_once(session, payload, timeout)
        except Fault as fault:
            session.record_failure(self._clock(), fault.message)
            raise
        session.record_success(self._clock())
        return response

    async def _request_once(self, session: BridgeSession, payload: Json, timeout: float) -> Json:
        loop = asyncio.get_running_loop()
        request = self._message(str(payload["operation"]), payload.get("payload") or {}, payload)
        pending = _Pending(session, loop.time() + timeout, loop.create_future())
        scope = asyncio.timeout(timeout)
        self._pending[request["requestId"]] = pending
        try:
            async with scope:
                await session.ready.wait()
                await self._bus.push(session.queue, request, timeout)
                return await pending.response
        except TimeoutError as exc:
            if not scope.expired():
                raise
            if pending.delivered:
                raise Fault(Kind.TIMEOUT, f"The Studio gave no answer within {timeout:g} s.") from exc
            raise studio_unavailable(f"The Studio did not fetch the request within {timeout:g} s.") from exc
        finally:
            del self._pending[request["requestId"]]

    def _message(self, operation: str, payload: Json, source: Json | None = None) -> Json:
        request_id = f"{self._bus.worker}.{next(self._numbers)}.{secrets.token_hex(6)}"
        source = source or {}
        return {
            "requestId": request_id,
            "correlationId": source.get("correlationId") or request_id,
            "idempotencyKey": source.get("idempotencyKey") or request_id,
            "operation": operation,
            "timestamp": datetime.now(UTC).isoformat().replace("+00:00", "Z"),
            "payload": payload,
        }

    # ---- session lifetime ----

    def get(self, owner: SessionOwner, session_id: str) -> BridgeSession:
        """Return the session. Raises `Fault(NOT_FOUND)` if it does not exist or has another owner."""
        session = self._sessions.get(session_id)
        if session is None or session.owner != owner:
            raise session_not_found()
        return session

    def _sweep(self) -> None:
        now = self._clock()
        for session in [
            each for each in self._sessions.values() if not each.active_polls and now - each.last_seen > _IDLE_SECONDS
        ]:
            self._remove(session, "The Studio has stopped polling.")

    async def _wake_polls(self, session: BridgeSession) -> None:
        """End the waiting polls, so that the Studio polls again at once."""
        for _ in range(session.active_polls):
            await self._bus.push(session.queue, {"wake": True}, _HANDSHAKE_SECONDS)

    def _remove(self, session: BridgeSession, reason: str) -> None:
        if session.is_closed:
            return
        session.is_closed = True
        del self._sessions[session.id]
        for pending in self._pending.values():
            if pending.session is session and not pending.response.done():
                pending.response.set_exception(studio_unavailable(reason))
        self._on_change(session)


def session_not_found() -> Fault:
    return Fault(Kind.NOT_FOUND, "No such session. Open a new one.")


def studio_unavailable(message: str) -> Fault:
    return Fault(Kind.UNAVAILABLE, message, retryable=False, category="platform")
