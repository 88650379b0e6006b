"""Studios and editors that connect from outside, to whichever worker: each is one session, held by one of them.

The worker where it connected holds it (`bridge_own.py`); the others know of it (`bridge_roster.py`) and reach it over
the bus (`bridge_far.py`), for a call as for the Studio's own requests. A worker that dies takes its sessions along: its
Studios are told 404 wherever they come next, and connect anew.
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
from gateway.upstream.bridge_roster import BridgeRoster, RemoteBridgeSession, row
from gateway.upstream.bridge_session import BridgeSession, as_line, whose
from gateway.upstream.host import CURRENT_CALL
from gateway.upstream.local_bridge_sessions import AUTH, CUT, LocalBridgeSessions, unavailable, unknown
from gateway.upstream.peer_bridge_sessions import PeerBridgeSessions, PeerSessionGone

_PER_KEY: Final = 32
_RETURN: Final = 8.0
"""How long a call waits for a Studio whose worker died to connect anew."""
EVERYWHERE: Final = "gatehouse:everywhere"
"""In the `meta` of what happens in every worker by itself: what comes of it need not be told to the others."""
_ID: Final = re.compile(r"([0-9a-f]{8})\.[\w-]{24}")


class Bridges:
    """Every session of this worker and of the others, for every backend that has a bridge."""

    def __init__(self, bus: Bus, *, cut: float = CUT, clock: Callable[[], float] = time.time) -> None:
        self._bus = bus
        self._own = LocalBridgeSessions(bus, cut=cut, clock=clock, changed=self._tell_of)
        self._far = PeerBridgeSessions(bus, self._own, self._spawn)
        self._roster = BridgeRoster(bus, self._rows, self._replaced, self._heard)
        self._hearing: dict[str, list[Callable[[Json, Json], None]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._leaving = False

    def for_backend(self, namespace: str) -> "BackendBridge":
        return BackendBridge(self, namespace)

    async def run(self) -> None:
        """Hear of the other workers' sessions and tell of this one's, for ever."""
        await self._roster.run()

    async def leave(self) -> None:
        """End every session, so that its Studio connects to another worker; no new one is taken."""
        self._leaving = True
        await self._own.end(list(self._own), "The gateway is leaving.")

    def connected(self) -> Counter[str]:
        """How many peers of this worker each backend has."""
        return self._own.counts()

    # ---- what a Studio does ----

    async def open(self, namespace: str, caller: Caller, name: str) -> str:
        """A new session's id. One of the same key and name is replaced: that Studio came back."""
        if self._leaving:
            raise Fault(Kind.UNAVAILABLE, "The gateway is leaving; connect again.", retry_after=1.0)
        session = self._own.open(namespace, caller, name)
        told = row(session, self._own.now())
        self._replaced(session.home, session.id)
        await self._end_oldest(session)
        await self._roster.tell(put=[told], opened=[told])
        return session.id

    async def read(self, caller: Caller, session_id: str, token: str, timeout: float) -> str | None:
        """The next line for the Studio; None when there is none in time. Raises `Fault(NOT_FOUND)`.

        `token` is the Studio's own, given back to it in the handshake; it goes nowhere else.
        """
        worker = self._worker_of(session_id)
        if worker == self._bus.worker:
            message = await self._own.read(whose(caller), session_id, timeout)
        else:
            message = await self._far.read(worker, whose(caller), session_id, timeout)
        if message is None:
            return None
        if message["operation"] == AUTH:
            message = {**message, "payload": {"token": token, **message["payload"]}}
        return as_line(message)

    async def write(self, caller: Caller, session_id: str, line: str) -> None:
        """An answer of the Studio. Raises `Fault`: NOT_FOUND, or INVALID_INPUT for what is no answer."""
        worker = self._worker_of(session_id)
        if worker == self._bus.worker:
            await self._own.write(whose(caller), session_id, line)
        else:
            await self._far.write(worker, whose(caller), session_id, line)

    async def close(self, caller: Caller, session_id: str) -> None:
        worker = self._worker_of(session_id)
        if worker == self._bus.worker:
            await self._own.end([self._own.get(whose(caller), session_id)], "The Studio left.")
        else:
            await self._far.close(worker, whose(caller), session_id)

    def cut(self, session_id: str) -> None:
        """The Studio's connection broke while it waited for a line. (Another worker learns it from the poll itself.)"""
        self._own.cut(session_id)

    def tell(self, caller: Caller, session_id: str, event: Json) -> None:
        """What a peer of this worker says unasked; heard in every worker. Raises `Fault(NOT_FOUND)`."""
        session = self._own.get(whose(caller), session_id)
        session.last_seen = self._own.now()
        owner = session.caller
        said: Json = {
            "namespace": session.namespace,
            "owner": [owner.tenant, owner.subject, owner.kind, owner.credential],
            "peer": session.shown(session.last_seen),
            "event": event,
        }
        self._heard(said)
        self._spawn(self._roster.tell(event=said))

    def _heard(self, said: Json) -> None:
        tenant, subject, kind, credential = said["owner"]
        caller = Caller(tenant, subject, kind, credential=credential)
        now = asyncio.get_running_loop().time()
        here = CURRENT_CALL.set(CurrentCall(caller, secrets.token_hex(8), now, {EVERYWHERE: True}))
        try:
            for told in list(self._hearing.get(said["namespace"], ())):
                told(said["peer"], said["event"])
        finally:
            CURRENT_CALL.reset(here)

    @contextmanager
    def hearing(self, namespace: str, told: Callable[[Json, Json], None]) -> Generator[None]:
        self._hearing.setdefault(namespace, []).append(told)
        try:
            yield
        finally:
            self._hearing[namespace].remove(told)

    # ---- what a backend does ----

    def peers(self, namespace: str, caller: Caller) -> list[Json]:
        """Oldest first, whichever worker they are connected to."""
        now = self._own.now()
        return [
            each.shown(now) if isinstance(each, BridgeSession) else each.shown
            for each in self._all(namespace, caller.tenant)
        ]

    async def request(self, namespace: str, caller: Caller, peer: str | None, payload: Json, timeout: float) -> Json:
        known = [each for each in self._all(namespace, caller.tenant) if peer is None or each.id == peer]
        if not known:
            raise unavailable("No Studio is connected.")
        chosen = known[-1]
        until = asyncio.get_running_loop().time() + min(timeout, _RETURN)
        while isinstance(chosen, RemoteBridgeSession):
            try:
                return await self._far.request(chosen.worker, caller.tenant, chosen.id, payload, timeout)
            except PeerSessionGone:
                self._roster.forget(chosen.worker)
                chosen = await self._returned(chosen, until)
        return await self._own.request(chosen, payload, timeout)

    async def _returned(self, lost: RemoteBridgeSession, until: float) -> BridgeSession | RemoteBridgeSession:
        """The session in which the same Studio came back after its worker died."""
        while True:
            back = [each for each in self._all(lost.home[0], lost.home[1]) if each.home == lost.home]
            if back:
                return back[-1]
            left = until - asyncio.get_running_loop().time()
            if left <= 0:
                raise unavailable("The Studio's connection was lost.")
            await self._roster.changes(min(left, 0.5))

    def _all(self, namespace: str, tenant: str) -> list[BridgeSession | RemoteBridgeSession]:
        everywhere: list[BridgeSession | RemoteBridgeSession] = [*self._own, *self._roster]
        found = [each for each in everywhere if each.home[:2] == (namespace, tenant)]
        return sorted(found, key=lambda each: each.connected_at)

    # ---- what the workers tell each other ----

    def _rows(self) -> list[Json]:
        now = self._own.now()
        return [row(session, now) for session in self._own]

    def _tell_of(self, session: BridgeSession) -> None:
        if session.closed:
            self._spawn(self._roster.tell(gone=[session.id]))
        else:
            self._spawn(self._roster.tell(put=[row(session, self._own.now())]))

    def _replaced(self, home: tuple[str, str, str, str], by: str) -> None:
        """That Studio has a new session, here or elsewhere."""
        before = [each for each in self._own if each.home == home and each.id != by]
        self._spawn(self._own.end(before, "The Studio connected anew."))

    async def _end_oldest(self, newest: BridgeSession) -> None:
        """A key has so many Studios and no more, over all workers."""
        namespace, who = newest.namespace, newest.who
        same = [each for each in self._all(namespace, who[0]) if each.home[2] == who[1] and each.home != newest.home]
        for each in same[: max(0, len(same) - _PER_KEY + 1)]:
            if isinstance(each, BridgeSession):
                await self._own.end([each], "Too many Studios are connected with this key.")
            else:
                self._spawn(self._close_far(each, who))

    async def _close_far(self, session: RemoteBridgeSession, who: tuple[str, str]) -> None:
        try:
            await self._far.close(session.worker, who, session.id)
        except Fault:
            self._roster.forget(session.worker)

    def _worker_of(self, session_id: str) -> str:
        found = _ID.fullmatch(session_id)
        if found is None:
            raise unknown()
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
        """`payload` is `{operation, payload, correlationId?, idempotencyKey?}`; the answer is the Studio's message."""
        return await self._bridges.request(self._namespace, caller, peer, payload, timeout)

    def subscribe(self, listener: Callable[[Json, Json], None]) -> AbstractContextManager[None]:
        return self._bridges.hearing(self._namespace, listener)
