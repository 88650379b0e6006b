"""Sessions of Studios and editors that connect to the gateway, for the backends that have a bridge.

The worker that a Studio connected to holds its session (`local_bridge_sessions`). Other workers know the session from
the roster (`bridge_roster`) and reach it over the bus (`peer_bridge_sessions`), for calls and for requests of the
Studio. When a worker dies its sessions are lost: their Studios get 404 from any other worker and open new sessions.
"""

import asyncio
import re
import secrets
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Generator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Final

from gateway.contract import Bus, Caller, CurrentCall, Json
from gateway.errors import Fault, Kind
from gateway.upstream.bridge_roster import BridgeRoster, PeerBridgeSession, session_row
from gateway.upstream.bridge_session import BridgeSession, encode_line, session_owner
from gateway.upstream.host import CURRENT_CALL
from gateway.upstream.local_bridge_sessions import (
    AUTH,
    RECONNECT_GRACE,
    LocalBridgeSessions,
    session_not_found,
    studio_unavailable,
)
from gateway.upstream.peer_bridge_sessions import PeerBridgeSessions, PeerUnreachable

_MAX_PER_KEY: Final = 32
_RECONNECT_SECONDS: Final = 8.0
"""How long a call waits for the Studio of a dead worker to reconnect."""
BROADCAST: Final = "gatehouse:everywhere"
"""Key in the `meta` of a call that runs in every worker: its effects are not published to the other workers."""
_ID: Final = re.compile(r"([0-9a-f]{8})\.[\w-]{24}")


class Bridges:
    """The sessions of all workers, for every backend that has a bridge."""

    def __init__(
        self, bus: Bus, *, reconnect_grace: float = RECONNECT_GRACE, clock: Callable[[], float] = time.time
    ) -> None:
        self._bus = bus
        self._local_sessions = LocalBridgeSessions(
            bus, reconnect_grace=reconnect_grace, clock=clock, on_change=self._publish_session
        )
        self._peer_sessions = PeerBridgeSessions(bus, self._local_sessions, self._spawn)
        self._roster = BridgeRoster(bus, self._rows, self._end_replaced, self._deliver_event)
        self._listeners: dict[str, list[Callable[[Json, Json], None]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._draining = False

    def for_backend(self, namespace: str) -> "BackendBridge":
        return BackendBridge(self, namespace)

    async def run(self) -> None:
        """Exchange the roster with the other workers. Never returns."""
        await self._roster.run()

    async def drain(self) -> None:
        """End every session, so that its Studio connects to another worker, and reject new ones."""
        self._draining = True
        await self._local_sessions.end(list(self._local_sessions), "The gateway is shutting down.")

    def count_by_backend(self) -> Counter[str]:
        """Number of Studios connected to this worker, by backend."""
        return self._local_sessions.count_by_backend()

    # ---- API for Studios ----

    async def open(self, namespace: str, caller: Caller, name: str) -> str:
        """Open a session and return its id. Replaces a session with the same key and name: the Studio reconnected."""
        if self._draining:
            raise Fault(Kind.UNAVAILABLE, "The gateway is shutting down. Connect again.", retry_after=1.0)
        session = self._local_sessions.open(namespace, caller, name)
        row = session_row(session, self._local_sessions.now())
        self._end_replaced(session.studio_key, session.id)
        await self._end_oldest(session)
        await self._roster.publish(put=[row], opened=[row])
        return session.id

    async def read(self, caller: Caller, session_id: str, token: str, timeout: float) -> str | None:
        """Return the next line for the Studio; None after `timeout`. Raises `Fault(NOT_FOUND)`.

        `token` is the Studio's own token, which the handshake returns to it. It is not sent to other workers.
        """
        worker = self._worker_of(session_id)
        if worker == self._bus.worker:
            message = await self._local_sessions.read(session_owner(caller), session_id, timeout)
        else:
            message = await self._peer_sessions.read(worker, session_owner(caller), session_id, timeout)
        if message is None:
            return None
        if message["operation"] == AUTH:
            message = {**message, "payload": {"token": token, **message["payload"]}}
        return encode_line(message)

    async def write(self, caller: Caller, session_id: str, line: str) -> None:
        """Handle a response line of the Studio. Raises `Fault`: NOT_FOUND, or INVALID_INPUT if it is malformed."""
        worker = self._worker_of(session_id)
        if worker == self._bus.worker:
            await self._local_sessions.write(session_owner(caller), session_id, line)
        else:
            await self._peer_sessions.write(worker, session_owner(caller), session_id, line)

    async def close(self, caller: Caller, session_id: str) -> None:
        worker = self._worker_of(session_id)
        if worker == self._bus.worker:
            await self._local_sessions.end(
                [self._local_sessions.get(session_owner(caller), session_id)], "The Studio closed its session."
            )
        else:
            await self._peer_sessions.close(worker, session_owner(caller), session_id)

    def connection_lost(self, session_id: str) -> None:
        """The Studio's connection broke while it polled. (Peers notice it by the cancelled poll.)"""
        self._local_sessions.connection_lost(session_id)

    def publish_event(self, caller: Caller, session_id: str, event: Json) -> None:
        """Deliver an event of a Studio of this worker to the listeners in every worker. Raises `Fault(NOT_FOUND)`."""
        session = self._local_sessions.get(session_owner(caller), session_id)
        session.last_seen = self._local_sessions.now()
        owner = session.caller
        event_message: Json = {
            "namespace": session.namespace,
            "owner": [owner.tenant, owner.subject, owner.kind, owner.credential],
            "peer": session.describe(session.last_seen),
            "event": event,
        }
        self._deliver_event(event_message)
        self._spawn(self._roster.publish(event=event_message))

    def _deliver_event(self, event_message: Json) -> None:
        tenant, subject, kind, credential = event_message["owner"]
        caller = Caller(tenant, subject, kind, credential=credential)
        now = asyncio.get_running_loop().time()
        token = CURRENT_CALL.set(CurrentCall(caller, secrets.token_hex(8), now, {BROADCAST: True}))
        try:
            for listener in list(self._listeners.get(event_message["namespace"], ())):
                listener(event_message["peer"], event_message["event"])
        finally:
            CURRENT_CALL.reset(token)

    @contextmanager
    def subscribe(self, namespace: str, listener: Callable[[Json, Json], None]) -> Generator[None]:
        self._listeners.setdefault(namespace, []).append(listener)
        try:
            yield
        finally:
            self._listeners[namespace].remove(listener)

    # ---- API for backends ----

    def peers(self, namespace: str, caller: Caller) -> list[Json]:
        """The tenant's Studios on all workers, oldest first."""
        now = self._local_sessions.now()
        return [
            each.describe(now) if isinstance(each, BridgeSession) else each.description
            for each in self._sessions(namespace, caller.tenant)
        ]

    async def request(self, namespace: str, caller: Caller, peer: str | None, payload: Json, timeout: float) -> Json:
        known = [each for each in self._sessions(namespace, caller.tenant) if peer is None or each.id == peer]
        if not known:
            raise studio_unavailable("No Studio is connected.")
        chosen = known[-1]
        deadline = asyncio.get_running_loop().time() + min(timeout, _RECONNECT_SECONDS)
        while isinstance(chosen, PeerBridgeSession):
            try:
                return await self._peer_sessions.request(chosen.worker, caller.tenant, chosen.id, payload, timeout)
            except PeerUnreachable:
                self._roster.remove_worker(chosen.worker)
                chosen = await self._wait_for_reconnect(chosen, deadline)
        return await self._local_sessions.request(chosen, payload, timeout)

    async def _wait_for_reconnect(self, lost: PeerBridgeSession, deadline: float) -> BridgeSession | PeerBridgeSession:
        """Wait for a new session of the same Studio, after its worker died."""
        while True:
            reconnected = [
                each
                for each in self._sessions(lost.studio_key[0], lost.studio_key[1])
                if each.studio_key == lost.studio_key
            ]
            if reconnected:
                return reconnected[-1]
            remaining = deadline - asyncio.get_running_loop().time()
            if remaining <= 0:
                raise studio_unavailable("The Studio's connection was lost.")
            await self._roster.wait_for_change(min(remaining, 0.5))

    def _sessions(self, namespace: str, tenant: str) -> list[BridgeSession | PeerBridgeSession]:
        sessions: list[BridgeSession | PeerBridgeSession] = [*self._local_sessions, *self._roster]
        found = [each for each in sessions if each.studio_key[:2] == (namespace, tenant)]
        return sorted(found, key=lambda each: each.connected_at)

    # ---- roster ----

    def _rows(self) -> list[Json]:
        now = self._local_sessions.now()
        return [session_row(session, now) for session in self._local_sessions]

    def _publish_session(self, session: BridgeSession) -> None:
        if session.is_closed:
            self._spawn(self._roster.publish(gone=[session.id]))
        else:
            self._spawn(self._roster.publish(put=[session_row(session, self._local_sessions.now())]))

    def _end_replaced(self, studio_key: tuple[str, str, str, str], new_id: str) -> None:
        """End the older sessions of a Studio that opened a new one, on this worker or another."""
        replaced = [each for each in self._local_sessions if each.studio_key == studio_key and each.id != new_id]
        self._spawn(self._local_sessions.end(replaced, "The Studio opened a new session."))

    async def _end_oldest(self, newest: BridgeSession) -> None:
        """Limit the Studios of one key to `_MAX_PER_KEY`, over all workers."""
        namespace, owner = newest.namespace, newest.owner
        same = [
            each
            for each in self._sessions(namespace, owner[0])
            if each.studio_key[2] == owner[1] and each.studio_key != newest.studio_key
        ]
        for each in same[: max(0, len(same) - _MAX_PER_KEY + 1)]:
            if isinstance(each, BridgeSession):
                await self._local_sessions.end([each], "Too many Studios are connected with this key.")
            else:
                self._spawn(self._close_peer(each, owner))

    async def _close_peer(self, session: PeerBridgeSession, owner: tuple[str, str]) -> None:
        try:
            await self._peer_sessions.close(session.worker, owner, session.id)
        except Fault:
            self._roster.remove_worker(session.worker)

    def _worker_of(self, session_id: str) -> str:
        found = _ID.fullmatch(session_id)
        if found is None:
            raise session_not_found()
        return found[1]

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


@dataclass(frozen=True, slots=True)
class BackendBridge:
    """`gateway.contract.Bridge` for one backend."""

    _bridges: Bridges
    _namespace: str

    def peers(self, caller: Caller) -> list[Json]:
        return self._bridges.peers(self._namespace, caller)

    async def request(self, caller: Caller, peer: str | None, payload: Json, timeout: float) -> Json:
        """`payload` is `{operation, payload, correlationId?, idempotencyKey?}`. Returns the Studio's response."""
        return await self._bridges.request(self._namespace, caller, peer, payload, timeout)

    def subscribe(self, listener: Callable[[Json, Json], None]) -> AbstractContextManager[None]:
        return self._bridges.subscribe(self._namespace, listener)
