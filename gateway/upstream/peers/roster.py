"""Roster of the peer sessions that other workers hold.

Each worker publishes a session that opened, changed or closed, and all its sessions every `_INTERVAL_SECONDS`. Entries
expire after `_TTL_SECONDS`, so that the sessions of a dead worker disappear.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gateway.contract import Bus, Json
from gateway.errors import Fault
from gateway.upstream.peers.local_sessions import PeerKey, PeerSession

_TOPIC: Final = "peers.roster"
_INTERVAL_SECONDS: Final = 2.0
_TTL_SECONDS: Final = 7.0

log = logging.getLogger("gatehouse.peers")


@dataclass(frozen=True, slots=True)
class RemoteSession:
    """A session of another worker, as that worker last published it."""

    worker: str
    id: str
    peer_key: PeerKey
    description: Json

    @property
    def connected_at(self) -> float:
        return self.description["connected_at"]


class PeerRoster:
    """Iterates over the sessions of the other workers.

    `local_rows` returns this worker's sessions. `on_replaced(peer_key, id)` is called when a peer opened that
    session on another worker, `on_event` for an event of a peer of another worker.
    """

    def __init__(
        self,
        bus: Bus,
        local_rows: Callable[[], Sequence[Json]],
        on_replaced: Callable[[PeerKey, str], None],
        on_event: Callable[[Json], None],
        *,
        interval: float = _INTERVAL_SECONDS,
        ttl: float = _TTL_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bus = bus
        self._local_rows = local_rows
        self._on_replaced = on_replaced
        self._on_event = on_event
        self._interval = interval
        self._ttl = ttl
        self._clock = clock
        self._workers: dict[str, tuple[float, dict[str, RemoteSession]]] = {}
        """By worker: expiry time and sessions."""
        self._changed = asyncio.Event()

    def __iter__(self) -> Iterator[RemoteSession]:
        now = self._clock()
        for worker in [worker for worker, (expires_at, _) in self._workers.items() if expires_at <= now]:
            del self._workers[worker]
        return iter([each for _, rows in self._workers.values() for each in rows.values()])

    def remove_worker(self, worker: str) -> None:
        """Remove a worker that does not respond."""
        self._workers.pop(worker, None)

    async def wait_for_change(self, seconds: float) -> None:
        """Wait for the next roster message, at most `seconds`."""
        self._changed.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            pass

    async def publish(self, **fields: Any) -> None:
        try:
            await self._bus.publish(_TOPIC, {"from": self._bus.worker, **fields})
        except Fault:
            log.debug("peer roster: publish failed; other workers see the change with the next announcement")

    async def run(self) -> None:
        """Publish and receive. Never returns."""
        async with self._bus.subscribe(_TOPIC) as messages:
            announcing = asyncio.create_task(self._announce())
            try:
                async for message in messages:
                    if message["from"] != self._bus.worker:
                        try:
                            await self._handle_message(message)
                        except Exception:  # a malformed message must not end the subscription
                            log.exception("peer roster: malformed message of another worker; ignored")
            finally:
                announcing.cancel()
                await asyncio.gather(announcing, return_exceptions=True)

    async def _announce(self) -> None:
        await self.publish(who=True)
        announced = False
        while True:
            rows = self._local_rows()
            # One empty announcement after the last session closed, then none.
            if rows or announced:
                await self.publish(all=rows)
            announced = bool(rows)
            await asyncio.sleep(self._interval)

    async def _handle_message(self, message: Json) -> None:
        worker: str = message["from"]
        if "who" in message:
            await self.publish(all=self._local_rows())
            return
        if "event" in message:
            self._on_event(message["event"])
            return
        _, rows = self._workers.get(worker, (0.0, {}))
        if "all" in message:
            rows = {}
        for row in (*message.get("all", ()), *message.get("put", ())):
            session = RemoteSession(worker, row["id"], tuple(row["home"]), row["shown"])
            rows[session.id] = session
        for id in message.get("gone", ()):
            rows.pop(id, None)
        self._workers[worker] = (self._clock() + self._ttl, rows)
        for row in message.get("opened", ()):
            self._on_replaced(tuple(row["home"]), row["id"])
        self._changed.set()


def session_row(session: PeerSession, now: float) -> Json:
    """Encode a session for the roster. Contains no secret: the credential id is the public name of the key."""
    return {"id": session.id, "home": session.peer_key, "shown": session.describe(now)}
