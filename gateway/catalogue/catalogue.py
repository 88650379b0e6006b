"""Every backend's lists, and the views made of them. Listing never waits for a backend."""

import asyncio
import itertools
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Protocol

from gateway.catalogue.memory import SHARED, Forgetful, Memory, Remembered
from gateway.catalogue.names import Mode
from gateway.catalogue.pins import pin
from gateway.catalogue.snapshot import Snapshot, take
from gateway.catalogue.view import Naming, View
from gateway.contract import Backend, Bus, Caller, Change, Offer, Route
from gateway.errors import Fault, ForeignError

log = logging.getLogger("gatehouse.catalogue")

MAX_VIEWS: Final = 1024
REREAD_SECONDS: Final = 1.0
FIRST_OFFER_SECONDS: Final = 3.0
OFFER_SECONDS: Final = 30.0
KEEP_SECONDS: Final = 600.0
"""How often it is written down that lists are still as they were."""
TOPIC: Final = "catalogue"


class Sight(Protocol):
    """Which part of the catalogue a caller may see."""

    def key(self, caller: Caller) -> Hashable:
        """Equal for callers with the same view."""
        ...

    def enters(self, caller: Caller, server: str) -> bool:
        """Whether the caller's tenant has that virtual server."""
        ...

    def has(self, caller: Caller, namespace: str) -> bool:
        """Whether the caller's tenant may use that backend at all."""
        ...

    def sees(self, caller: Caller, route: Route) -> bool:
        """Whether the name leads anywhere at all."""
        ...

    def lists(self, caller: Caller, route: Route) -> bool:
        """Whether it is shown in lists as well."""
        ...


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One path: which backends it shows and how it names their tools."""

    path: str
    mode: Mode
    namespaces: tuple[str, ...] | None = None
    """None: all."""
    server: str | None = None
    """The virtual server it is, if it is one."""


Listener = Callable[[str, Change], None]


class Catalogue:
    """The snapshots of all backends, swapped whole when one changes."""

    def __init__(
        self,
        sight: Sight,
        naming: Naming,
        keep_stale: float = 86_400.0,
        memory: Memory | None = None,
        bus: Bus | None = None,
    ) -> None:
        self._keep_stale = keep_stale
        self._memory: Memory = memory or Forgetful()
        self._bus = bus
        self._origins: dict[str, str] = {}
        self._good_at: dict[str, float] = {}
        self._kept: dict[str, tuple[float, Offer]] = {}
        self._sight = sight
        self._naming = naming
        self._snapshots: dict[str, Snapshot] = {}
        self._endpoints: dict[str, Endpoint] = {}
        self._views: OrderedDict[tuple[str, Hashable], View] = OrderedDict()
        self._read_at: dict[str, float] = {}
        self._listeners: list[Listener] = []
        self._refreshing: set[asyncio.Task[None]] = set()
        self._readings = itertools.count(1)
        self._applied: dict[str, int] = {}

    # ---- asked on every call ----

    def view(self, caller: Caller, path: str) -> View | None:
        """The caller's view at that path; None when there is no such endpoint, or nothing of it is theirs."""
        key = (path, self._sight.key(caller))
        view = self._views.get(key)
        if view is None:
            view = self._build(caller, path)
            if view is None:
                return None
            self._views[key] = view
            if len(self._views) > MAX_VIEWS:
                self._views.popitem(last=False)
        return view

    def everything(self) -> View:
        """All that is served, whoever may see it, by its usual names: for operators."""
        return View(self._snapshots.values(), "underscore", self._naming, _always, _always)

    async def reread(self, namespaces: Mapping[str, Snapshot]) -> bool:
        """Read these backends' lists once more, each at most once a second; true when any was read."""
        now = time.monotonic()
        due = [ns for ns in namespaces if now - self._read_at.get(ns, 0.0) >= REREAD_SECONDS]
        await asyncio.gather(*(self.refresh(self._snapshots[ns].backend) for ns in due if ns in self._snapshots))
        return bool(due)

    # ---- what is served ----

    def serve(self, endpoints: Mapping[str, Endpoint]) -> None:
        self._endpoints = dict(endpoints)
        self._views.clear()

    async def add(self, backend: Backend, origin: str = "") -> None:
        """Take a backend in with the lists it last had; one never seen is waited for, but only a moment.

        `origin` tells this server from another that had its name before.
        """
        namespace = backend.namespace
        self._origins[namespace] = origin
        self._good_at[namespace] = time.time()
        remembered = await self._memory.recall(namespace, SHARED, origin) if not backend.trusted else None
        if remembered is not None and time.time() - remembered.good_at <= self._keep_stale:
            self._good_at[namespace] = remembered.good_at
            self._kept[namespace] = (remembered.good_at, remembered.offer)
            self._snapshots[namespace] = await asyncio.to_thread(take, backend, remembered.offer)
            self._views.clear()
        else:
            remembered = None
            self._snapshots[namespace] = take(backend, Offer())
        backend.on_change(lambda change: self._changed(backend, change))
        reading = self._start(self.refresh(backend))
        if remembered is None:
            # Waited for, not given up: a slow server's tools are listed as soon as it answers.
            await asyncio.wait({reading}, timeout=FIRST_OFFER_SECONDS)

    def drop(self, namespace: str) -> None:
        if namespace in self._snapshots:
            # Told while it is still in view: whoever sees it no more could not be asked whether to tell them.
            self._tell(namespace, _EVERYTHING)
            del self._snapshots[namespace]
            self._applied.pop(namespace, None)
            self._kept.pop(namespace, None)
            self._views.clear()

    async def refresh(self, backend: Backend, said: Change | None = None) -> None:
        """Read its lists and tell what changed, and what the backend `said` did; on failure the last good ones stay."""
        namespace, reading = backend.namespace, next(self._readings)
        self._read_at[namespace] = time.monotonic()
        try:
            async with asyncio.timeout(OFFER_SECONDS):
                offer = await backend.offer(None)
                # Checked off the loop: a hostile schema may take a while.
                snapshot = await asyncio.to_thread(take, backend, offer)
        except (Fault, ForeignError, TimeoutError) as exc:
            log.warning("%s: its lists could not be read: %s", namespace, str(exc) or "no answer in time")
            self._degrade(namespace)
            return
        except Exception:
            # Whatever a backend's lists raise, neither its own tools nor anybody else's may go with it.
            log.exception("%s: its lists could not be read", namespace)
            self._degrade(namespace)
            return
        if self._swap(backend, snapshot, reading, said) and not backend.trusted:
            self._good_at[namespace] = time.time()
            await self._remember(namespace, offer, snapshot)

    def _swap(self, backend: Backend, snapshot: Snapshot, reading: int, said: Change | None = None) -> bool:
        """False when the backend was dropped or replaced meanwhile, or a later reading was faster."""
        namespace = backend.namespace
        before = self._snapshots.get(namespace)
        if before is None or before.backend is not backend or reading < self._applied.get(namespace, 0):
            return False
        self._applied[namespace] = reading
        for name in snapshot.quarantined.keys() - before.quarantined.keys():
            log.warning("%s: %r is not served: %s", namespace, name, snapshot.quarantined[name])
        for name in snapshot.suspicious.keys() - before.suspicious.keys():
            log.warning("%s: %r sounds like an order to the model: %r", namespace, name, snapshot.suspicious[name])
        self._snapshots[namespace] = snapshot
        changes = _differences(before.offer, snapshot.offer)
        if said is not None and said not in changes:
            changes.append(said)
        if before.offer != snapshot.offer or before.degraded:
            self._views.clear()
        self._tell(namespace, changes)
        return True

    # ---- what outlives this process, and what its replicas tell each other ----

    async def _remember(self, namespace: str, offer: Offer, snapshot: Snapshot) -> None:
        now = time.time()
        kept_at, kept = self._kept.get(namespace, (0.0, None))
        changed = kept != offer
        if not changed and now - kept_at < min(KEEP_SECONDS, self._keep_stale / 2):
            return
        self._kept[namespace] = (now, offer)
        try:
            await self._memory.keep(namespace, SHARED, self._origins[namespace], Remembered(offer, now))
            if changed:
                await self._pin(namespace, snapshot)
        except Fault as fault:
            log.warning("%s: its lists could not be written down: %s", namespace, fault.message)
            self._kept.pop(namespace, None)
        if changed and self._bus is not None:
            await self._bus.publish(TOPIC, {"namespace": namespace, "worker": self._bus.worker})

    async def _pin(self, namespace: str, snapshot: Snapshot) -> None:
        pins = {tool["name"]: pin(tool) for tool in snapshot.offer.tools}
        for tool, parts in (await self._memory.pin(namespace, SHARED, pins)).items():
            log.warning("%s: the definition of %r has changed: %s", namespace, tool, ", ".join(parts))

    async def keep_fresh(self, seconds: float) -> None:
        """Read the lists of remote backends again and again; a module says itself when its lists change.

        Of several replicas one reads each backend, and the others take over what it found.
        """
        while True:
            await asyncio.sleep(seconds)
            remote = [each.backend for each in self._snapshots.values() if not each.backend.trusted]
            await asyncio.gather(*(self._refresh_if_mine(backend, seconds) for backend in remote))

    async def _refresh_if_mine(self, backend: Backend, seconds: float) -> None:
        # Not given back: it ends by itself just before the next turn, so that each turn is one replica's.
        if self._bus is None or await self._bus.lease(f"catalogue/{backend.namespace}", seconds * 0.9) is not None:
            await self.refresh(backend)

    async def hear_replicas(self) -> None:
        """Take over what another replica has read, as long as this task runs."""
        if self._bus is None:
            return
        async with self._bus.subscribe(TOPIC) as news:
            async for message in news:
                if message["worker"] != self._bus.worker:
                    await self._take_over(str(message["namespace"]))

    async def _take_over(self, namespace: str) -> None:
        before, reading = self._snapshots.get(namespace), next(self._readings)
        if before is None:
            return
        try:
            remembered = await self._memory.recall(namespace, SHARED, self._origins[namespace])
        except Fault as fault:
            log.warning("%s: what another replica read cannot be read: %s", namespace, fault.message)
            return
        if remembered is None:
            return
        snapshot = await asyncio.to_thread(take, before.backend, remembered.offer)
        if self._swap(before.backend, snapshot, reading):
            self._good_at[namespace] = remembered.good_at
            self._kept[namespace] = (remembered.good_at, remembered.offer)

    def on_change(self, listener: Listener) -> None:
        self._listeners.append(listener)

    @property
    def snapshots(self) -> Mapping[str, Snapshot]:
        return self._snapshots

    def ages(self) -> dict[str, float]:
        """Seconds since each remote backend's lists were last read well."""
        now = time.time()
        remote = [ns for ns, each in self._snapshots.items() if not each.backend.trusted]
        return {ns: now - self._good_at[ns] for ns in remote if ns in self._good_at}

    # ---- inside ----

    def _build(self, caller: Caller, path: str) -> View | None:
        endpoint = self._endpoints.get(path)
        if endpoint is None or (endpoint.server is not None and not self._sight.enters(caller, endpoint.server)):
            return None
        names = self._snapshots if endpoint.namespaces is None else endpoint.namespaces
        mine = [self._snapshots[ns] for ns in names if ns in self._snapshots and self._sight.has(caller, ns)]
        if not mine and endpoint.namespaces is not None:
            return None
        sight = self._sight
        return View(mine, endpoint.mode, self._naming, partial(sight.sees, caller), partial(sight.lists, caller))

    def _degrade(self, namespace: str) -> None:
        """Its tools stay listed for a while, and say that it is not well."""
        before = self._snapshots.get(namespace)
        if before is None:
            return
        if time.time() - self._good_at[namespace] > self._keep_stale and before.offer.tools:
            self._snapshots[namespace] = replace(take(before.backend, Offer()), degraded=True)
            self._views.clear()
            self._tell(namespace, _EVERYTHING)
        elif not before.degraded:
            self._snapshots[namespace] = replace(before, degraded=True)
            self._views.clear()

    def _changed(self, backend: Backend, change: Change) -> None:
        if change.kind == "resource":
            self._tell(backend.namespace, [change])
            return
        self._start(self.refresh(backend, change))

    def _start(self, refreshing: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(refreshing)
        self._refreshing.add(task)
        task.add_done_callback(self._refreshing.discard)
        return task

    def _tell(self, namespace: str, changes: Sequence[Change]) -> None:
        for listener in self._listeners:
            for change in changes:
                listener(namespace, change)


def _always(route: Route) -> bool:
    return True


_EVERYTHING: Final = (Change("tools"), Change("prompts"), Change("resources"))


def _differences(before: Offer, after: Offer) -> list[Change]:
    changes: list[Change] = []
    if before.tools != after.tools:
        changes.append(Change("tools"))
    if before.prompts != after.prompts:
        changes.append(Change("prompts"))
    if (before.resources, before.templates) != (after.resources, after.templates):
        changes.append(Change("resources"))
    return changes
