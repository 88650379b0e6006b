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

from gateway.catalogue.names import Mode
from gateway.catalogue.snapshot import Snapshot, take
from gateway.catalogue.view import Naming, View
from gateway.contract import Backend, Caller, Change, Offer, Route
from gateway.errors import Fault, ForeignError

log = logging.getLogger("gatehouse.catalogue")

MAX_VIEWS: Final = 1024
REREAD_SECONDS: Final = 1.0
FIRST_OFFER_SECONDS: Final = 3.0
OFFER_SECONDS: Final = 30.0


class Sight(Protocol):
    """Which part of the catalogue a caller may see."""

    def key(self, caller: Caller) -> Hashable:
        """Equal for callers with the same view."""
        ...

    def enters(self, caller: Caller, server: str) -> bool:
        """Whether the caller's tenant has that virtual server."""
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

    def __init__(self, sight: Sight, naming: Naming, keep_stale: float = 86_400.0) -> None:
        self._keep_stale = keep_stale
        self._degraded_at: dict[str, float] = {}
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

    async def add(self, backend: Backend) -> None:
        """Take a backend in, waiting a moment for its first lists."""
        self._snapshots[backend.namespace] = take(backend, Offer())
        backend.on_change(lambda change: self._changed(backend, change))
        # Waited for, not given up: a slow server's tools are listed as soon as it answers.
        await asyncio.wait({self._start(self.refresh(backend))}, timeout=FIRST_OFFER_SECONDS)

    def drop(self, namespace: str) -> None:
        if namespace in self._snapshots:
            # Told while it is still in view: whoever sees it no more could not be asked whether to tell them.
            self._tell(namespace, _EVERYTHING)
            del self._snapshots[namespace]
            self._applied.pop(namespace, None)
            self._views.clear()

    async def refresh(self, backend: Backend, said: Change | None = None) -> None:
        """Read its lists and tell what changed, and what the backend `said` did; on failure the last good ones stay."""
        namespace, reading = backend.namespace, next(self._readings)
        self._read_at[namespace] = time.monotonic()
        try:
            async with asyncio.timeout(OFFER_SECONDS):
                # Checked off the loop: a hostile schema may take a while.
                snapshot = await asyncio.to_thread(take, backend, await backend.offer(None))
        except (Fault, ForeignError, TimeoutError) as exc:
            log.warning("%s: its lists could not be read: %s", namespace, str(exc) or "no answer in time")
            self._degrade(namespace)
            return
        except Exception:
            # Whatever a backend's lists raise, neither its own tools nor anybody else's may go with it.
            log.exception("%s: its lists could not be read", namespace)
            self._degrade(namespace)
            return
        before = self._snapshots.get(namespace)
        if before is None or before.backend is not backend or reading < self._applied.get(namespace, 0):
            return  # dropped or replaced meanwhile, or a later reading was faster
        self._applied[namespace] = reading
        self._degraded_at.pop(namespace, None)
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

    async def keep_fresh(self, seconds: float) -> None:
        """Read the lists of remote backends again and again; a module says itself when its lists change."""
        while True:
            await asyncio.sleep(seconds)
            remote = [each.backend for each in self._snapshots.values() if not each.backend.trusted]
            await asyncio.gather(*(self.refresh(backend) for backend in remote))

    def on_change(self, listener: Listener) -> None:
        self._listeners.append(listener)

    @property
    def snapshots(self) -> Mapping[str, Snapshot]:
        return self._snapshots

    # ---- inside ----

    def _build(self, caller: Caller, path: str) -> View | None:
        endpoint = self._endpoints.get(path)
        if endpoint is None or (endpoint.server is not None and not self._sight.enters(caller, endpoint.server)):
            return None
        names = self._snapshots if endpoint.namespaces is None else endpoint.namespaces
        mine = [self._snapshots[ns] for ns in names if ns in self._snapshots and self._sees_any(caller, ns)]
        if not mine and endpoint.namespaces is not None:
            return None
        sight = self._sight
        return View(mine, endpoint.mode, self._naming, partial(sight.sees, caller), partial(sight.lists, caller))

    def _sees_any(self, caller: Caller, namespace: str) -> bool:
        backend = self._snapshots[namespace].backend
        whole = Route(namespace, "*", f"{namespace}.*", "*", backend, {}, effect=0)
        return self._sight.sees(caller, whole)

    def _degrade(self, namespace: str) -> None:
        """Its tools stay listed for a while, and say that it is not well."""
        before = self._snapshots.get(namespace)
        if before is None:
            return
        since = self._degraded_at.setdefault(namespace, time.monotonic())
        if not before.degraded:
            self._snapshots[namespace] = replace(before, degraded=True)
            self._views.clear()
        elif before.offer.tools and time.monotonic() - since > self._keep_stale:
            self._snapshots[namespace] = replace(take(before.backend, Offer()), degraded=True)
            self._views.clear()
            self._tell(namespace, _EVERYTHING)

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
