"""The lists of one backend: reading, storing, and replacing the snapshot that clients see.

`Catalogue` holds one `Listing` per backend; `IsolatedListings` holds one per owner of an isolated server.
"""

import asyncio
import itertools
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from gateway.catalogue.persistence import SHARED, ListingStore, StoredListing
from gateway.catalogue.snapshot import Snapshot, take_snapshot
from gateway.contract import Backend, BackendLists, Bus, ListChange
from gateway.errors import Fault, ForeignError

log = logging.getLogger("gatehouse.catalogue")

READ_TIMEOUT_SECONDS: Final = 30.0
STORE_INTERVAL_SECONDS: Final = 600.0
"""How often unchanged lists are stored again, to update their age."""
TOPIC: Final = "catalogue"
ALL_LISTS: Final = (ListChange("tools"), ListChange("prompts"), ListChange("resources"))

Read = Callable[[], Awaitable[BackendLists]]


@dataclass(frozen=True, slots=True)
class ListingPolicy:
    """Dependencies and settings shared by all listings of a catalogue."""

    store: ListingStore
    bus: Bus | None
    keep_stale: float
    on_swap: "Callable[[Listing, Sequence[ListChange]], None]"
    """Called when a listing has a new snapshot, with the changes to notify."""


class Listing:
    """The lists of a backend, for all callers or for one owner.

    `snapshot` is what clients see. Until the first read it is the snapshot of `common`.
    """

    def __init__(
        self,
        backend: Backend,
        origin: str,
        policy: ListingPolicy,
        read: Read,
        owner: str | None = None,
        common: "Listing | None" = None,
    ) -> None:
        self.backend = backend
        self.owner = owner
        self.read_at = time.time()
        self.dropped = False
        """Whether the backend was removed or replaced."""
        self._origin = origin
        self._policy = policy
        self._read = read
        self._common = common
        self._lists: BackendLists | None = None
        """The lists that `_own_snapshot` was built from."""
        self._own_snapshot = None if common is not None else take_snapshot(backend, BackendLists())
        self._stored: tuple[float, BackendLists | None] = (0.0, None)
        self._pinned_lists: BackendLists | None = None
        """The lists whose pins this process saved last."""
        self._read_numbers = itertools.count(1)
        self._applied_read = 0

    @property
    def snapshot(self) -> Snapshot:
        own = self._own_snapshot
        if self._common is None:
            assert own is not None
            return own
        common = self._common.snapshot
        if own is None:
            return common
        # A change that the gateway read with its own credential applies to every owner, without waiting for a read.
        return own if common.unpinned <= own.unpinned else replace(own, unpinned=own.unpinned | common.unpinned)

    @property
    def lease_name(self) -> str:
        """Name of the lease that selects the replica that reads these lists."""
        return f"catalogue/{self._name}" if self.owner is None else f"catalogue/{self._name}/{self.owner}"

    async def restore(self) -> bool:
        """Use the stored lists of this server unless they are too old. False if there are none."""
        if self.backend.trusted:
            return False
        stored = await self._policy.store.load(self._name, self._store_owner, self._origin)
        if stored is None or time.time() - stored.read_at > self._policy.keep_stale:
            return False
        snapshot = await self._apply_pins(await self._build_snapshot(stored.lists))
        if self._applied_read:  # read meanwhile
            return True
        self._own_snapshot = snapshot
        self._lists, self.read_at = stored.lists, stored.read_at
        self._stored = (stored.read_at, stored.lists)
        self._policy.on_swap(self, ())
        return True

    async def refresh(self, reported: ListChange | None = None, read: Read | None = None) -> None:
        """Read the lists and notify of differences and of the `reported` change. On failure the last valid lists stay.

        `read` replaces the default read function.
        """
        try:
            await self.compare(read or self._read, reported)
        except (Fault, ForeignError, TimeoutError) as exc:
            reason = str(exc) or "no answer in time"
            log.warning("catalogue %s: reading the lists failed, last valid lists stay: %s", self._name, reason)
            self._degrade()
        except Exception:
            # A defect in one backend must not stop the refresh of the others.
            log.exception("catalogue %s: reading the lists failed, last valid lists stay", self._name)
            self._degrade()

    async def compare(self, read: Read, reported: ListChange | None = None) -> None:
        """Read the lists, compare the definitions with the accepted ones, replace the snapshot. Raises on failure."""
        read_number = next(self._read_numbers)
        async with asyncio.timeout(READ_TIMEOUT_SECONDS):
            lists = await read()
            built = await self._build_snapshot(lists)
            try:
                snapshot = await self._record_pins(lists, built)
            except Fault:
                if self._policy.store.denies_changes:
                    self._deny_changes(built)
                raise
        if self._swap(lists, snapshot, read_number, reported) and not self.backend.trusted:
            self.read_at = time.time()
            await self._store(lists)

    async def reload(self) -> None:
        """Use the lists that another replica has read and stored."""
        read_number = next(self._read_numbers)
        try:
            stored = await self._policy.store.load(self._name, self._store_owner, self._origin)
        except Fault as fault:
            log.warning("catalogue %s: loading another replica's lists failed: %s", self._name, fault.message)
            return
        if stored is None:
            return
        snapshot = await self._apply_pins(await self._build_snapshot(stored.lists))
        if self._swap(stored.lists, snapshot, read_number):
            self.read_at = stored.read_at
            self._stored = (stored.read_at, stored.lists)
            self._pinned_lists = None

    async def refresh_pins(self) -> None:
        """Reload which tools await acceptance of a changed definition."""
        before = self._own_snapshot
        if before is None or self.backend.trusted:
            return
        after = await self._apply_pins(before)
        if after is not before and self._own_snapshot is before and not self.dropped:
            self._own_snapshot = after
            self._policy.on_swap(self, [ListChange("tools", owner=self.owner)])

    # ---- internals ----

    @property
    def _name(self) -> str:
        return self.backend.namespace

    @property
    def _store_owner(self) -> str:
        if self.owner is None:
            return SHARED
        # A principal is `tenant/…`; a tenant name contains no slash.
        return f"{'user' if '/' in self.owner else 'tenant'}:{self.owner}"

    async def _build_snapshot(self, lists: BackendLists) -> Snapshot:
        if self._common is not None and lists == self._common._lists:
            return self._common.snapshot  # same lists: already compiled
        if self._own_snapshot is not None and lists == self._lists:
            return replace(self._own_snapshot, degraded=False) if self._own_snapshot.degraded else self._own_snapshot
        # In a thread: checking a hostile schema may take long.
        return await asyncio.to_thread(take_snapshot, self.backend, lists)

    def _swap(
        self, lists: BackendLists, snapshot: Snapshot, read_number: int, reported: ListChange | None = None
    ) -> bool:
        """Replace the snapshot. False if the backend was removed meanwhile or a later read finished first."""
        if self.dropped or read_number < self._applied_read:
            return False
        before, self._applied_read = self.snapshot, read_number
        for name in snapshot.quarantined.keys() - before.quarantined.keys():
            log.warning("catalogue %s: %r is not served: %s", self._name, name, snapshot.quarantined[name])
        for pattern in sorted({*snapshot.unmatched_effects} - {*before.unmatched_effects}):
            log.error("catalogue %s: effects: %r matches no tool and has no effect", self._name, pattern)
        for name in snapshot.suspicious.keys() - before.suspicious.keys():
            text = snapshot.suspicious[name]
            log.warning("catalogue %s: %r contains an instruction to the model: %r", self._name, name, text)
        self._own_snapshot = snapshot
        if lists != self._lists:  # keep one copy of equal lists
            self._lists = lists
        changes = _differences(before.lists, snapshot.lists)
        if reported is not None and reported.kind not in [each.kind for each in changes]:
            changes.append(reported)
        if changes or before.degraded or before.lists != snapshot.lists or before.unpinned != snapshot.unpinned:
            self._policy.on_swap(self, [each._replace(owner=self.owner) for each in changes])
        return True

    def _degrade(self) -> None:
        """Mark the lists as degraded; drop them once they are older than `keep_stale`."""
        before = self._own_snapshot
        if before is None or self.dropped:
            return
        if time.time() - self.read_at > self._policy.keep_stale and before.lists.tools:
            self._own_snapshot, self._lists = replace(take_snapshot(self.backend, BackendLists()), degraded=True), None
            self._policy.on_swap(self, [each._replace(owner=self.owner) for each in ALL_LISTS])
        elif not before.degraded:
            self._own_snapshot = replace(before, degraded=True)
            self._policy.on_swap(self, ())

    async def _store(self, lists: BackendLists) -> None:
        """Store the lists and notify the other replicas if they changed."""
        now, (stored_at, stored_lists) = time.time(), self._stored
        changed = stored_lists != lists
        if not changed and now - stored_at < min(STORE_INTERVAL_SECONDS, self._policy.keep_stale / 2):
            return
        self._stored = (now, lists)
        try:
            await self._policy.store.save(self._name, self._store_owner, self._origin, StoredListing(lists, now))
        except Fault as fault:
            log.warning("catalogue %s: storing the lists failed: %s", self._name, fault.message)
            self._stored = (0.0, None)
        if changed and (bus := self._policy.bus) is not None:
            await bus.publish(TOPIC, {"namespace": self._name, "whose": self.owner, "worker": bus.worker})

    async def _record_pins(self, lists: BackendLists, snapshot: Snapshot) -> Snapshot:
        """Record the pins before the snapshot is visible, so that a changed tool cannot be called before its check."""
        if self.backend.trusted:
            return snapshot
        if self._pinned_lists != lists and not self._is_common(snapshot):
            tools = {tool["name"]: tool for tool in (*snapshot.lists.tools, *lists.variants)}
            tools = {name: tool for name, tool in tools.items() if name in snapshot.digests}
            for tool, parts in (await self._policy.store.save_pins(self._name, self._store_owner, tools)).items():
                changed = ", ".join(parts)
                log.warning("catalogue %s: the definition of %r has changed: %s", self._name, tool, changed)
            self._pinned_lists = lists
        return await self._apply_pins(snapshot)

    def _deny_changes(self, read: Snapshot) -> None:
        """Without the accepted definitions, only those that are served already can be compared with."""
        before = self.snapshot
        changed = frozenset(
            name for name, digests in before.digests.items() if digests != read.digests.get(name, digests)
        )
        if not changed <= before.unpinned and not self.dropped:
            self._own_snapshot = replace(before, unpinned=before.unpinned | changed)
            self._policy.on_swap(self, [ListChange("tools", owner=self.owner)])

    async def _apply_pins(self, snapshot: Snapshot) -> Snapshot:
        if self._common is not None and self._is_common(snapshot):
            return self._common.snapshot
        accepted = await self._policy.store.list_accepted(self._name, self._store_owner)
        unpinned = frozenset[str]() if accepted is None else _find_unpinned(snapshot, accepted)
        return snapshot if snapshot.unpinned == unpinned else replace(snapshot, unpinned=unpinned)

    def _is_common(self, snapshot: Snapshot) -> bool:
        return self._common is not None and snapshot.lists is self._common.snapshot.lists


def _find_unpinned(snapshot: Snapshot, accepted: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """The tools of the snapshot with a definition that is not accepted."""
    nothing = frozenset[str]()
    return frozenset(name for name, digests in snapshot.digests.items() if not digests <= accepted.get(name, nothing))


def _differences(before: BackendLists, after: BackendLists) -> list[ListChange]:
    changes: list[ListChange] = []
    if before.tools != after.tools:
        changes.append(ListChange("tools"))
    if before.prompts != after.prompts:
        changes.append(ListChange("prompts"))
    if (before.resources, before.templates) != (after.resources, after.templates):
        changes.append(ListChange("resources"))
    return changes
