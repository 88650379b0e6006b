"""Peer sessions that this worker holds: handshake, requests and their responses.

Responses are matched by request id; late ones are dropped. A session id contains the name of its worker, so that any
worker can route to it.
"""

import asyncio
import itertools
import secrets
import time
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from gateway.contract import Bus, Caller, Json, PeerProtocol
from gateway.errors import Fault, Kind

_CONNECTED_SECONDS: Final = 10.0
_IDLE_SECONDS: Final = 300.0
RECONNECT_GRACE: Final = 2.0
"""How long a peer may take to reconnect after its connection broke, before its calls fail."""
_HANDSHAKE_SECONDS: Final = 5.0
"""Timeout of one request of the handshake, which is then repeated."""
_HANDSHAKE_PAUSE: Final = 0.5
_MAX_CAPABILITIES: Final = 32

SessionOwner = tuple[str, str]
"""Tenant and credential: a session can be used only with the key that opened it."""
PeerKey = tuple[str, str, str, str]
"""Namespace, tenant, credential, and identity or name: equal for successive sessions of the same peer."""
Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


@dataclass(eq=False, slots=True)
class PeerSession:
    """One peer's session, until the peer closes it, replaces it, or stops polling."""

    id: str
    namespace: str
    noun: str
    """What messages call the peer."""
    caller: Caller
    name: str
    protocol: PeerProtocol
    connected_at: float
    last_seen: float
    identity: str = ""
    """The peer's own id; empty for a peer that has none and is known by its name."""
    about: Json = field(default_factory=dict[str, Any])
    """What the peer says of itself."""
    state: Literal["connecting", "ready", "refused"] = "connecting"
    handshake: "asyncio.Task[None] | None" = None
    active_polls: int = 0
    poll_count: int = 0
    is_closed: bool = False
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    capabilities: list[str] = field(default_factory=list[str])
    last_success_at: float | None = None
    last_failure_at: float | None = None
    last_failure: str | None = None
    failures: int = 0

    @property
    def queue(self) -> str:
        return f"peers:{self.caller.tenant}:{self.id}"

    @property
    def owner(self) -> SessionOwner:
        return session_owner(self.caller)

    @property
    def peer_key(self) -> PeerKey:
        kind, value = ("id", self.identity) if self.identity else ("name", self.name)
        return (self.namespace, *self.owner, f"{kind}:{value}")

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
            "identity": self.identity,
            "credential": self.caller.credential,
            "about": self.about,
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


@dataclass(eq=False, slots=True)
class _Pending:
    session: PeerSession
    deadline: float
    """When the caller times out, on the event loop's clock."""
    response: "asyncio.Future[Json]"
    delivered: bool = False


class LocalSessions:
    """The sessions of this worker, for every module that has peers.

    `on_change` is called for a session that is ready, and for one that ended (`is_closed`).
    """

    def __init__(
        self,
        bus: Bus,
        spawn: Spawn,
        *,
        reconnect_grace: float = RECONNECT_GRACE,
        clock: Callable[[], float] = time.time,
        on_change: Callable[[PeerSession], None] = lambda _: None,
    ) -> None:
        self._bus = bus
        self._spawn = spawn
        self._reconnect_grace = reconnect_grace
        self._clock = clock
        self._on_change = on_change
        self._sessions: dict[str, PeerSession] = {}
        self._pending: dict[str, _Pending] = {}
        self._numbers = itertools.count(1)

    def __iter__(self) -> "itertools.chain[PeerSession]":
        self._sweep()
        return itertools.chain(self._sessions.values())

    def count_by_backend(self) -> Counter[str]:
        return Counter(session.namespace for session in self._sessions.values())

    def now(self) -> float:
        return self._clock()

    # ---- requests of peers ----

    def open(
        self,
        namespace: str,
        noun: str,
        caller: Caller,
        name: str,
        protocol: PeerProtocol,
        *,
        identity: str = "",
        about: Json | None = None,
    ) -> PeerSession:
        now = self._clock()
        id = f"{self._bus.worker}.{secrets.token_urlsafe(18)}"
        session = self._sessions[id] = PeerSession(
            id, namespace, noun, caller, name, protocol, now, now, identity, about or {}
        )
        session.handshake = self._spawn(self._run_handshake(session))
        return session

    async def read(self, owner: SessionOwner, session_id: str, timeout: float) -> Json | None:
        """Return the next message for the peer; None after `timeout`. Raises `Fault(NOT_FOUND)`."""
        session = self.get(owner, session_id)
        with session.polling(self._clock):
            message = await self._next(session, timeout)
        if session.is_closed:
            raise session_not_found()
        return message

    async def write(self, owner: SessionOwner, session_id: str, line: str) -> None:
        """Handle a response of the peer. Raises `Fault`: NOT_FOUND, or INVALID_INPUT if it is malformed."""
        session = self.get(owner, session_id)
        session.last_seen = self._clock()
        response = session.protocol.parse(line)
        pending = self._pending.get(response["requestId"])
        # Only the peer that got the request may answer it; late responses are dropped.
        if pending is not None and pending.session is session and not pending.response.done():
            pending.response.set_result(response)

    async def end(self, sessions: Collection[PeerSession], reason: str) -> None:
        for session in sessions:
            self._remove(session, reason)
            # End the waiting polls, so that the peer polls again at once.
            for _ in range(session.active_polls):
                await self._bus.push(session.queue, {"wake": True}, _HANDSHAKE_SECONDS)

    def connection_lost(self, session_id: str) -> None:
        """The peer's connection broke while it polled: end the session unless it polls again in time."""
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

    def _expire(self, session: PeerSession, poll_count: int) -> None:
        if session.poll_count == poll_count and not session.active_polls and not session.is_closed:
            self._remove(session, f"The {session.noun}'s connection was lost.")

    async def _next(self, session: PeerSession, timeout: float) -> Json | None:
        deadline = asyncio.get_running_loop().time() + timeout
        while not session.is_closed:
            remaining = deadline - asyncio.get_running_loop().time()
            message = await self._bus.pop(session.queue, max(remaining, 0.0))
            if message is None or "wake" in message:
                return None
            pending = self._pending.get(message["requestId"])
            if pending is not None:
                pending.delivered = True
                return message
            # The caller has timed out: the peer must not execute the request now.
        return None

    # ---- requests to peers ----

    async def request(self, session: PeerSession, message: Json, timeout: float) -> Json:
        """Send a request and return the response.

        Raises `Fault`: UNAVAILABLE when the peer disconnected or did not fetch the request, TIMEOUT when it did not
        answer it.
        """
        try:
            response = await self._send(session, message, timeout, ready=session.ready)
            if session.protocol.lost_handshake(response):
                # The peer restarted within the same session.
                if session.ready.is_set():
                    session.state = "connecting"
                    session.ready.clear()
                    session.handshake = self._spawn(self._run_handshake(session))
                response = await self._send(session, message, timeout, ready=session.ready)
        except Fault as fault:
            session.record_failure(self._clock(), fault.message)
            raise
        session.record_success(self._clock())
        return response

    async def _send(
        self, session: PeerSession, message: Json, timeout: float, ready: asyncio.Event | None = None
    ) -> Json:
        loop = asyncio.get_running_loop()
        request_id = f"{self._bus.worker}.{next(self._numbers)}.{secrets.token_hex(6)}"
        pending = _Pending(session, loop.time() + timeout, loop.create_future())
        scope = asyncio.timeout(timeout)
        self._pending[request_id] = pending
        try:
            async with scope:
                if ready is not None:
                    await ready.wait()
                await self._bus.push(session.queue, {**message, "requestId": request_id}, timeout)
                return await pending.response
        except TimeoutError as exc:
            if not scope.expired():
                raise
            if pending.delivered:
                raise Fault(Kind.TIMEOUT, f"The {session.noun} gave no answer within {timeout:g} s.") from exc
            raise peer_unavailable(f"The {session.noun} did not fetch the request within {timeout:g} s.") from exc
        finally:
            del self._pending[request_id]
            if pending.response.done() and not pending.response.cancelled():
                pending.response.exception()  # mark as retrieved: the caller may not have reached its await

    async def _run_handshake(self, session: PeerSession) -> None:
        """Repeat the handshake until the peer completes it or is refused, or the session ends."""

        async def send(message: Json) -> Json:
            return await self._send(session, message, _HANDSHAKE_SECONDS)

        while not session.is_closed:
            try:
                capabilities = await session.protocol.handshake(send)
            except Fault as fault:
                if fault.kind is not Kind.DENIED:
                    await asyncio.sleep(_HANDSHAKE_PAUSE)
                    continue
                session.state = "refused"
                session.record_failure(self._clock(), fault.message)
                return
            session.capabilities = list(capabilities[:_MAX_CAPABILITIES])
            session.state = "ready"
            session.ready.set()
            self._on_change(session)
            return

    # ---- session lifetime ----

    def get(self, owner: SessionOwner, session_id: str) -> PeerSession:
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
            self._remove(session, f"The {session.noun} has stopped polling.")

    def _remove(self, session: PeerSession, reason: str) -> None:
        if session.is_closed:
            return
        session.is_closed = True
        del self._sessions[session.id]
        if session.handshake is not None:
            session.handshake.cancel()
        for pending in self._pending.values():
            if pending.session is session and not pending.response.done():
                pending.response.set_exception(peer_unavailable(reason))
        self._on_change(session)


def session_owner(caller: Caller) -> SessionOwner:
    return caller.tenant, caller.credential


def session_not_found() -> Fault:
    return Fault(Kind.NOT_FOUND, "No such session. Open a new one.")


def peer_unavailable(message: str) -> Fault:
    return Fault(Kind.UNAVAILABLE, message, retryable=False, category="platform")
