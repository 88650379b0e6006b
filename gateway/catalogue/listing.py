"""One backend's lists as they were last read: for everybody, or for those who have a server of their own."""

import asyncio
import itertools
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from gateway.catalogue.persistence import SHARED, ListingStore, StoredListing, pin
from gateway.catalogue.snapshot import Snapshot, take
from gateway.contract import Backend, BackendLists, Bus, ListChange
from gateway.errors import Fault, ForeignError

log = logging.getLogger("gatehouse.catalogue")

OFFER_SECONDS: Final = 30.0
KEEP_SECONDS: Final = 600.0
"""How often it is written down that lists are still as they were."""
TOPIC: Final = "catalogue"
EVERYTHING: Final = (ListChange("tools"), ListChange("prompts"), ListChange("resources"))

Read = Callable[[], Awaitable[BackendLists]]


@dataclass(frozen=True, slots=True)
class ListingPolicy:
    """What all listings of a catalogue share."""

    memory: ListingStore
    bus: Bus | None
    keep_stale: float
    swapped: "Callable[[Listing, Sequence[ListChange]], None]"
    """Told when what is shown is another than before, and which changes to tell."""


class Listing:
    """`shown` is what clients see of it: until it was read for the first time, what `common` shows."""

    def __init__(
        self,
        backend: Backend,
        origin: str,
        keeping: ListingPolicy,
        read: Read,
        whose: str | None = None,
        common: "Listing | None" = None,
    ) -> None:
        self.backend = backend
        self.whose = whose
        self.good_at = time.time()
        self.dropped = False
        """Whether another took its place, or none."""
        self._origin = origin
        self._keeping = keeping
        self._read = read
        self._common = common
        self._offer: BackendLists | None = None
        """What `_own` was taken of."""
        self._own = None if common is not None else take(backend, BackendLists())
        self._kept: tuple[float, BackendLists | None] = (0.0, None)
        self._readings = itertools.count(1)
        self._applied = 0

    @property
    def shown(self) -> Snapshot:
        if self._own is not None:
            return self._own
        assert self._common is not None
        return self._common.shown

    @property
    def lease(self) -> str:
        """Of several replicas one reads it."""
        return f"catalogue/{self._name}" if self.whose is None else f"catalogue/{self._name}/{self.whose}"

    async def recall(self) -> bool:
        """Show what was remembered of that very server, if it is not too old; false when there is nothing."""
        if self.backend.trusted:
            return False
        remembered = await self._keeping.memory.recall(self._name, self._kept_as, self._origin)
        if remembered is None or time.time() - remembered.good_at > self._keeping.keep_stale:
            return False
        self._own = await self._pinned(await self._taken(remembered.offer))
        self._offer, self.good_at = remembered.offer, remembered.good_at
        self._kept = (remembered.good_at, remembered.offer)
        self._keeping.swapped(self, ())
        return True

    async def refresh(self, said: ListChange | None = None, read: Read | None = None) -> None:
        """Read its lists, in the usual way unless another is given, and tell what changed and what the backend `said`
        did; on failure the last good ones stay."""
        reading = next(self._readings)
        try:
            async with asyncio.timeout(OFFER_SECONDS):
                offer = await (read or self._read)()
                snapshot = await self._noted(offer, await self._taken(offer))
        except (Fault, ForeignError, TimeoutError) as exc:
            log.warning("%s: its lists could not be read: %s", self._name, str(exc) or "no answer in time")
            self._degrade()
            return
        except Exception:
            # Whatever a backend's lists raise, neither its own tools nor anybody else's may go with it.
            log.exception("%s: its lists could not be read", self._name)
            self._degrade()
            return
        if self._swap(offer, snapshot, reading, said) and not self.backend.trusted:
            self.good_at = time.time()
            await self._remember(offer)

    async def take_over(self) -> None:
        """Show what another replica has read."""
        reading = next(self._readings)
        try:
            remembered = await self._keeping.memory.recall(self._name, self._kept_as, self._origin)
        except Fault as fault:
            log.warning("%s: what another replica read cannot be read: %s", self._name, fault.message)
            return
        if remembered is None:
            return
        snapshot = await self._pinned(await self._taken(remembered.offer))
        if self._swap(remembered.offer, snapshot, reading):
            self.good_at = remembered.good_at
            self._kept = (remembered.good_at, remembered.offer)

    async def repin(self) -> None:
        """Look anew which of its tools wait for somebody to accept them."""
        before = self._own
        if before is None or self.backend.trusted:
            return
        after = await self._pinned(before)
        if after is not before and self._own is before and not self.dropped:
            self._own = after
            self._keeping.swapped(self, [ListChange("tools", owner=self.whose)])

    # ---- inside ----

    @property
    def _name(self) -> str:
        return self.backend.namespace

    @property
    def _kept_as(self) -> str:
        if self.whose is None:
            return SHARED
        # A principal's name begins with its tenant's and a slash, which no tenant's has.
        return f"{'user' if '/' in self.whose else 'tenant'}:{self.whose}"

    async def _taken(self, offer: BackendLists) -> Snapshot:
        if self._common is not None and offer == self._common._offer:
            return self._common.shown  # as everybody's: compiled already
        if self._own is not None and offer == self._offer:
            return replace(self._own, degraded=False) if self._own.degraded else self._own
        # Checked off the loop: a hostile schema may take a while.
        return await asyncio.to_thread(take, self.backend, offer)

    def _swap(self, offer: BackendLists, snapshot: Snapshot, reading: int, said: ListChange | None = None) -> bool:
        """False when the backend was dropped or replaced meanwhile, or a later reading was faster."""
        if self.dropped or reading < self._applied:
            return False
        before, self._applied = self.shown, reading
        for name in snapshot.quarantined.keys() - before.quarantined.keys():
            log.warning("%s: %r is not served: %s", self._name, name, snapshot.quarantined[name])
        for name in snapshot.suspicious.keys() - before.suspicious.keys():
            log.warning("%s: %r sounds like an order to the model: %r", self._name, name, snapshot.suspicious[name])
        self._own = snapshot
        if offer != self._offer:  # lists that are alike are held once
            self._offer = offer
        changes = _differences(before.offer, snapshot.offer)
        if said is not None and said.kind not in [each.kind for each in changes]:
            changes.append(said)
        if changes or before.degraded or before.offer != snapshot.offer or before.unpinned != snapshot.unpinned:
            self._keeping.swapped(self, [each._replace(owner=self.whose) for each in changes])
        return True

    def _degrade(self) -> None:
        """Its tools stay listed for a while, and say that it is not well."""
        before = self._own
        if before is None or self.dropped:
            return
        if time.time() - self.good_at > self._keeping.keep_stale and before.offer.tools:
            self._own, self._offer = replace(take(self.backend, BackendLists()), degraded=True), None
            self._keeping.swapped(self, [each._replace(owner=self.whose) for each in EVERYTHING])
        elif not before.degraded:
            self._own = replace(before, degraded=True)
            self._keeping.swapped(self, ())

    async def _remember(self, offer: BackendLists) -> None:
        """What outlives this process, and what its replicas tell each other."""
        now, (kept_at, kept) = time.time(), self._kept
        changed = kept != offer
        if not changed and now - kept_at < min(KEEP_SECONDS, self._keeping.keep_stale / 2):
            return
        self._kept = (now, offer)
        try:
            await self._keeping.memory.keep(self._name, self._kept_as, self._origin, StoredListing(offer, now))
        except Fault as fault:
            log.warning("%s: its lists could not be written down: %s", self._name, fault.message)
            self._kept = (0.0, None)
        if changed and (bus := self._keeping.bus) is not None:
            await bus.publish(TOPIC, {"namespace": self._name, "whose": self.whose, "worker": bus.worker})

    async def _noted(self, offer: BackendLists, snapshot: Snapshot) -> Snapshot:
        """Before any of it is shown: what has changed must not be used in the moment until that is known."""
        if self.backend.trusted:
            return snapshot
        if self._kept[1] != offer and not self._as_everybodys(snapshot):
            pins = {tool["name"]: pin(tool) for tool in snapshot.offer.tools}
            for tool, parts in (await self._keeping.memory.pin(self._name, self._kept_as, pins)).items():
                log.warning("%s: the definition of %r has changed: %s", self._name, tool, ", ".join(parts))
        return await self._pinned(snapshot)

    async def _pinned(self, snapshot: Snapshot) -> Snapshot:
        if self._common is not None and self._as_everybodys(snapshot):
            return self._common.shown
        unpinned = await self._keeping.memory.unpinned(self._name, self._kept_as)
        return snapshot if snapshot.unpinned == unpinned else replace(snapshot, unpinned=unpinned)

    def _as_everybodys(self, snapshot: Snapshot) -> bool:
        return self._common is not None and snapshot.offer is self._common.shown.offer


def _differences(before: BackendLists, after: BackendLists) -> list[ListChange]:
    changes: list[ListChange] = []
    if before.tools != after.tools:
        changes.append(ListChange("tools"))
    if before.prompts != after.prompts:
        changes.append(ListChange("prompts"))
    if (before.resources, before.templates) != (after.resources, after.templates):
        changes.append(ListChange("resources"))
    return changes
