"""The peer sessions of all workers, for the modules that have peers.

The worker that a peer connected to holds its session (`local_sessions`). Other workers know the session from the roster
(`roster`) and reach it over the bus (`worker_relay`), for calls and for requests of the peer. When a worker dies its
sessions are lost: their peers get 404 from any other worker and open new sessions.
"""

import asyncio
import logging
import re
import secrets
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Final

from gateway.contract import Bus, Caller, CurrentCall, Json, PeerProtocol
from gateway.errors import Fault, Kind
from gateway.upstream.host import CURRENT_CALL
from gateway.upstream.peers.local_sessions import (
    RECONNECT_GRACE,
    LocalSessions,
    PeerKey,
    PeerSession,
    peer_unavailable,
    session_not_found,
    session_owner,
)
from gateway.upstream.peers.roster import PeerRoster, RemoteSession, session_row
from gateway.upstream.peers.worker_relay import WorkerRelay, WorkerUnreachable

_MAX_PER_KEY: Final = 32
_RECONNECT_SECONDS: Final = 8.0
"""How long a call waits for the peer of a dead worker to reconnect."""
BROADCAST: Final = "gatehouse:everywhere"
"""Key in the `meta` of a call that runs in every worker: its effects are not published to the other workers."""
_ID: Final = re.compile(r"([0-9a-f]{8})\.[\w-]{24}")

log = logging.getLogger("gatehouse.peers")


class PeerService:
    """The sessions of all workers, for every module that has peers."""

    def __init__(
        self, bus: Bus, *, reconnect_grace: float = RECONNECT_GRACE, clock: Callable[[], float] = time.time
    ) -> None:
        self._bus = bus
        self._local_sessions = LocalSessions(
            bus, self._spawn, reconnect_grace=reconnect_grace, clock=clock, on_change=self._publish_session
        )
        self._relay = WorkerRelay(bus, self._local_sessions, self._spawn)
        self._roster = PeerRoster(bus, self._rows, self._end_replaced, self._deliver_event)
        self._listeners: dict[str, list[Callable[[Json, Json], None]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._draining = False

    def for_backend(self, namespace: str, noun: str) -> "BackendPeers":
        return BackendPeers(self, namespace, noun)

    async def run(self) -> None:
        """Exchange the roster with the other workers. Never returns."""
        await self._roster.run()

    async def drain(self) -> None:
        """End every session, so that its peer connects to another worker, and reject new ones."""
        self._draining = True
        await self._local_sessions.end(list(self._local_sessions), "The gateway is shutting down.")

    async def end_backend(self, namespace: str) -> None:
        """End the sessions of a backend that is no longer served."""
        sessions = [each for each in self._local_sessions if each.namespace == namespace]
        await self._local_sessions.end(sessions, "The backend is no longer served.")

    def count_by_backend(self) -> Counter[str]:
        """Number of peers connected to this worker, by backend."""
        return self._local_sessions.count_by_backend()

    # ---- requests of peers ----

    async def open(
        self,
        namespace: str,
        noun: str,
        caller: Caller,
        name: str,
        protocol: PeerProtocol,
        *,
        identity: str = "",
        about: Json | None = None,
    ) -> str:
        if self._draining:
            raise Fault(Kind.UNAVAILABLE, "The gateway is shutting down. Connect again.", retry_after=1.0)
        session = self._local_sessions.open(namespace, noun, caller, name, protocol, identity=identity, about=about)
        row = session_row(session, self._local_sessions.now())
        self._end_replaced(session.peer_key, session.id)
        await self._end_oldest(session)
        await self._roster.publish(put=[row], opened=[row])
        return session.id

    async def read(self, caller: Caller, session_id: str, timeout: float) -> Json | None:
        worker = self._worker_of(session_id)
        if worker == self._bus.worker:
            return await self._local_sessions.read(session_owner(caller), session_id, timeout)
        return await self._relay.read(worker, session_owner(caller), session_id, timeout)

    async def write(self, caller: Caller, session_id: str, line: str) -> None:
        worker = self._worker_of(session_id)
        if worker == self._bus.worker:
            await self._local_sessions.write(session_owner(caller), session_id, line)
        else:
            await self._relay.write(worker, session_owner(caller), session_id, line)

    async def close(self, caller: Caller, session_id: str) -> None:
        worker = self._worker_of(session_id)
        if worker == self._bus.worker:
            session = self._local_sessions.get(session_owner(caller), session_id)
            await self._local_sessions.end([session], f"The {session.noun} closed its session.")
        else:
            await self._relay.close(worker, session_owner(caller), session_id)

    def connection_lost(self, session_id: str) -> None:
        # A session of another worker: that worker notices the cancelled poll.
        self._local_sessions.connection_lost(session_id)

    def publish_event(self, caller: Caller, session_id: str, event: Json) -> None:
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

    # ---- requests to peers ----

    def describe_all(self, namespace: str, caller: Caller) -> Sequence[Json]:
        now = self._local_sessions.now()
        return [
            each.describe(now) if isinstance(each, PeerSession) else each.description
            for each in self._sessions(namespace, caller.tenant)
        ]

    async def request(
        self, namespace: str, noun: str, caller: Caller, peer: str | None, message: Json, timeout: float
    ) -> Json:
        known = [each for each in self._sessions(namespace, caller.tenant) if peer is None or each.id == peer]
        if not known:
            raise peer_unavailable(f"No {noun} is connected.")
        chosen = known[-1]
        deadline = asyncio.get_running_loop().time() + min(timeout, _RECONNECT_SECONDS)
        while isinstance(chosen, RemoteSession):
            try:
                return await self._relay.request(chosen, noun, message, timeout)
            except WorkerUnreachable:
                self._roster.remove_worker(chosen.worker)
                if (reconnected := await self._wait_for_reconnect(chosen, deadline)) is None:
                    raise peer_unavailable(f"The {noun}'s connection was lost.") from None
                chosen = reconnected
        return await self._local_sessions.request(chosen, message, timeout)

    async def _wait_for_reconnect(self, lost: RemoteSession, deadline: float) -> PeerSession | RemoteSession | None:
        """Return a new session of the same peer, whose worker died; None if there is none at the deadline."""
        while True:
            reconnected = [
                each for each in self._sessions(lost.peer_key[0], lost.peer_key[1]) if each.peer_key == lost.peer_key
            ]
            if reconnected:
                return reconnected[-1]
            remaining = deadline - asyncio.get_running_loop().time()
            if remaining <= 0:
                return None
            await self._roster.wait_for_change(min(remaining, 0.5))

    def _sessions(self, namespace: str, tenant: str) -> list[PeerSession | RemoteSession]:
        sessions: list[PeerSession | RemoteSession] = [*self._local_sessions, *self._roster]
        found = [each for each in sessions if each.peer_key[:2] == (namespace, tenant)]
        return sorted(found, key=lambda each: each.connected_at)

    # ---- roster ----

    def _rows(self) -> list[Json]:
        now = self._local_sessions.now()
        return [session_row(session, now) for session in self._local_sessions]

    def _publish_session(self, session: PeerSession) -> None:
        if session.is_closed:
            self._spawn(self._roster.publish(gone=[session.id]))
        else:
            self._spawn(self._roster.publish(put=[session_row(session, self._local_sessions.now())]))

    def _end_replaced(self, peer_key: PeerKey, new_id: str) -> None:
        """End the older sessions of a peer that opened a new one, on this worker or another."""
        replaced = [each for each in self._local_sessions if each.peer_key == peer_key and each.id != new_id]
        for each in replaced:
            self._spawn(self._local_sessions.end([each], f"The {each.noun} opened a new session."))

    async def _end_oldest(self, newest: PeerSession) -> None:
        """Limit the peers of one key to `_MAX_PER_KEY`, over all workers."""
        namespace, owner = newest.namespace, newest.owner
        same = [
            each
            for each in self._sessions(namespace, owner[0])
            if each.peer_key[2] == owner[1] and each.peer_key != newest.peer_key
        ]
        for each in same[: max(0, len(same) - _MAX_PER_KEY + 1)]:
            if isinstance(each, PeerSession):
                await self._local_sessions.end([each], f"Too many {each.noun}s are connected with this key.")
            else:
                self._spawn(self._close_remote(each, owner))

    async def _close_remote(self, session: RemoteSession, owner: tuple[str, str]) -> None:
        try:
            await self._relay.close(session.worker, owner, session.id)
        except Fault:
            self._roster.remove_worker(session.worker)

    def _worker_of(self, session_id: str) -> str:
        found = _ID.fullmatch(session_id)
        if found is None:
            raise session_not_found()
        return found[1]

    def _spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finish)
        return task

    def _finish(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            # A module's own handshake may fail in any way.
            log.error("peers: background task failed; it is not restarted", exc_info=failure)


@dataclass(frozen=True, slots=True)
class BackendPeers:
    """`gateway.contract.Peers` for one backend."""

    _service: PeerService
    _namespace: str
    _noun: str

    async def open(
        self, caller: Caller, name: str, protocol: PeerProtocol, *, identity: str = "", about: Json | None = None
    ) -> str:
        return await self._service.open(
            self._namespace, self._noun, caller, name, protocol, identity=identity, about=about
        )

    async def read(self, caller: Caller, session_id: str, timeout: float) -> Json | None:
        return await self._service.read(caller, session_id, timeout)

    async def write(self, caller: Caller, session_id: str, line: str) -> None:
        await self._service.write(caller, session_id, line)

    async def close(self, caller: Caller, session_id: str) -> None:
        await self._service.close(caller, session_id)

    def connection_lost(self, session_id: str) -> None:
        self._service.connection_lost(session_id)

    def publish_event(self, caller: Caller, session_id: str, event: Json) -> None:
        self._service.publish_event(caller, session_id, event)

    def list(self, caller: Caller) -> Sequence[Json]:
        return self._service.describe_all(self._namespace, caller)

    async def request(self, caller: Caller, peer: str | None, message: Json, timeout: float) -> Json:
        return await self._service.request(self._namespace, self._noun, caller, peer, message, timeout)

    def subscribe(self, listener: Callable[[Json, Json], None]) -> AbstractContextManager[None]:
        return self._service.subscribe(self._namespace, listener)
