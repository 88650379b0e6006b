"""Which Studios and editors the other workers hold.

Each worker tells the others of a session that came, changed or left, and of all it holds every few seconds. What it
told is good for a few seconds more: the sessions of a worker that died are forgotten by then.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gateway.contract import Bus, Json
from gateway.errors import Fault
from gateway.upstream.bridge_session import BridgeSession

_TOPIC: Final = "bridge.roster"
_EVERY: Final = 2.0
_GOOD: Final = 7.0

log = logging.getLogger("gatehouse.bridge")


@dataclass(frozen=True, slots=True)
class RemoteBridgeSession:
    """A session of another worker, as that worker last told of it."""

    worker: str
    id: str
    home: tuple[str, str, str, str]
    """Namespace, tenant, credential and name."""
    shown: Json

    @property
    def connected_at(self) -> float:
        return self.shown["connected_at"]


class BridgeRoster:
    """`own` are this worker's sessions; `replaced(home, id)` hears that a Studio has opened that session elsewhere, and
    `said` what a peer of another worker said unasked."""

    def __init__(
        self,
        bus: Bus,
        own: Callable[[], Sequence[Json]],
        replaced: Callable[[tuple[str, str, str, str], str], None],
        said: Callable[[Json], None],
        *,
        every: float = _EVERY,
        good: float = _GOOD,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bus = bus
        self._own = own
        self._replaced = replaced
        self._said = said
        self._every = every
        self._good = good
        self._clock = clock
        self._away: dict[str, tuple[float, dict[str, RemoteBridgeSession]]] = {}
        """By worker: until when it is believed, and its sessions."""
        self._news = asyncio.Event()

    def __iter__(self) -> Iterator[RemoteBridgeSession]:
        now = self._clock()
        for worker in [worker for worker, (until, _) in self._away.items() if until <= now]:
            del self._away[worker]
        return iter([each for _, rows in self._away.values() for each in rows.values()])

    def forget(self, worker: str) -> None:
        """It is gone: nobody hears what is sent to it."""
        self._away.pop(worker, None)

    async def changes(self, seconds: float) -> None:
        """Until something is told, or that long."""
        self._news.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            pass

    async def tell(self, **what: Any) -> None:
        try:
            await self._bus.publish(_TOPIC, {"from": self._bus.worker, **what})
        except Fault:
            log.debug("the other workers could not be told of this one's Studios")

    async def run(self) -> None:
        """Listen and tell, for ever."""
        async with self._bus.subscribe(_TOPIC) as messages:
            beating = asyncio.create_task(self._beat())
            try:
                async for message in messages:
                    if message["from"] != self._bus.worker:
                        try:
                            await self._heard(message)
                        except Exception:  # one message that cannot be understood must not end the listening
                            log.exception("what a worker told of its Studios could not be taken")
            finally:
                beating.cancel()
                await asyncio.gather(beating, return_exceptions=True)

    async def _beat(self) -> None:
        await self.tell(who=True)
        told = False
        while True:
            own = self._own()
            # Once more after the last one left, and then silence.
            if own or told:
                await self.tell(all=own)
            told = bool(own)
            await asyncio.sleep(self._every)

    async def _heard(self, message: Json) -> None:
        worker: str = message["from"]
        if "who" in message:
            await self.tell(all=self._own())
            return
        if "event" in message:
            self._said(message["event"])
            return
        _, rows = self._away.get(worker, (0.0, {}))
        if "all" in message:
            rows = {}
        for row in (*message.get("all", ()), *message.get("put", ())):
            away = RemoteBridgeSession(worker, row["id"], tuple(row["home"]), row["shown"])
            rows[away.id] = away
        for id in message.get("gone", ()):
            rows.pop(id, None)
        self._away[worker] = (self._clock() + self._good, rows)
        for row in message.get("opened", ()):
            self._replaced(tuple(row["home"]), row["id"])
        self._news.set()


def row(session: BridgeSession, now: float) -> Json:
    """A session as it is told of. No token and no secret: the credential's id is the key's public name."""
    return {"id": session.id, "home": session.home, "shown": session.shown(now)}
