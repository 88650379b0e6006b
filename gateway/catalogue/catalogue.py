"""Every backend's lists, and the views made of them. Listing never waits for a backend."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol
from weakref import WeakKeyDictionary

from gateway.catalogue.isolated_lists import IsolatedListings
from gateway.catalogue.listing import EVERYTHING, TOPIC, Listing, ListingPolicy, Read
from gateway.catalogue.names import Mode
from gateway.catalogue.persistence import ListingStore, NullListingStore
from gateway.catalogue.snapshot import Snapshot
from gateway.catalogue.view import ListFormat, View
from gateway.contract import Backend, Bus, Call, Caller, ListChange, Route

MAX_VIEWS: Final = 1024
REREAD_SECONDS: Final = 1.0
FIRST_OFFER_SECONDS: Final = 3.0


class ViewPolicy(Protocol):
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
class McpEndpointConfig:
    """One path: which backends it shows and how it names their tools."""

    path: str
    mode: Mode
    namespaces: tuple[str, ...] | None = None
    """None: all."""
    server: str | None = None
    """The virtual server it is, if it is one."""


Listener = Callable[[str, ListChange], None]


class Catalogue:
    """The snapshots of all backends, swapped whole when one changes."""

    def __init__(
        self,
        sight: ViewPolicy,
        naming: ListFormat,
        keep_stale: float = 86_400.0,
        memory: ListingStore | None = None,
        bus: Bus | None = None,
    ) -> None:
        self._bus = bus
        self._keeping = ListingPolicy(memory or NullListingStore(), bus, keep_stale, self._swapped)
        self._sight = sight
        self._naming = naming
        self._listings: dict[str, Listing] = {}
        self._own = IsolatedListings(self._keeping)
        self._endpoints: dict[str, McpEndpointConfig] = {}
        self._views: OrderedDict[tuple[str, Hashable, str], View] = OrderedDict()
        self._read_at: WeakKeyDictionary[Listing, float] = WeakKeyDictionary()
        self._said: dict[Listing, list[ListChange]] = {}
        """What was said to have changed while the lists were already being read."""
        self._listeners: list[Listener] = []
        self._refreshing: set[asyncio.Task[None]] = set()

    # ---- asked on every call ----

    def view(self, caller: Caller, path: str) -> View | None:
        """The caller's view at that path; None when there is no such endpoint, or nothing of it is theirs."""
        key = (path, self._sight.key(caller), caller.principal if self._own.by_user else caller.tenant)
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
        return View(self.snapshots.values(), "underscore", self._naming, _always, _always)

    # ---- asked before a list is shown, and before a name is called unknown ----

    async def ready(self, call: Call) -> None:
        """Have the lists of the caller's own servers read, where it has such: waited for once, but only a moment."""
        if not self._own.namespaces:
            return
        caller = call.caller
        reading = [
            self._own.opened(self._listings[namespace], caller, call.client, self._start)
            for namespace in self._in(call.endpoint)
            if namespace in self._own.namespaces and self._sight.has(caller, namespace)
        ]
        if under_way := [each for each in reading if each is not None]:
            await asyncio.wait(under_way, timeout=FIRST_OFFER_SECONDS)

    async def reread(self, namespaces: Iterable[str], call: Call | None = None) -> bool:
        """Read these backends' lists once more, each at most once a second; true when any was read."""
        if call is not None:
            await self.ready(call)
        now = time.monotonic()
        mine = [self._of(ns, call.caller if call else None) for ns in namespaces if ns in self._listings]
        due = [each for each in mine if now - self._read_at.get(each, 0.0) >= REREAD_SECONDS]
        reads = [self._own.reading(each, call.caller, call.client) if call is not None else None for each in due]
        await asyncio.gather(*(self._refresh(each, read=read) for each, read in zip(due, reads, strict=True)))
        return bool(due)

    # ---- what is served ----

    def serve(self, endpoints: Mapping[str, McpEndpointConfig]) -> None:
        self._endpoints = dict(endpoints)
        self._views.clear()

    async def add(self, backend: Backend, origin: str = "") -> None:
        """Take a backend in with the lists it last had; one never seen is waited for, but only a moment.

        `origin` tells this server from another that had its name before.
        """
        self._forget(backend.namespace)
        listing = Listing(backend, origin, self._keeping, partial(backend.fetch_lists, None))
        recalled = await listing.recall()
        self._listings[backend.namespace] = listing
        self._own.serve(backend, origin)
        self._views.clear()
        backend.on_change(lambda change: self._changed(listing, change))
        reading = self._start(self._refresh(listing))
        if not recalled:
            # Waited for, not given up: a slow server's tools are listed as soon as it answers.
            await asyncio.wait({reading}, timeout=FIRST_OFFER_SECONDS)

    def drop(self, namespace: str) -> None:
        if namespace in self._listings:
            # Told while it is still in view: whoever sees it no more could not be asked whether to tell them.
            self._tell(namespace, EVERYTHING)
            self._forget(namespace)
            del self._listings[namespace]
            self._views.clear()

    async def refresh(self, backend: Backend, said: ListChange | None = None) -> None:
        """Read its lists and tell what changed, and what the backend `said` did; on failure the last good ones stay."""
        listing = self._listings.get(backend.namespace)
        if listing is not None and listing.backend is backend:
            await self._refresh(listing, said)

    async def repin(self) -> None:
        """Look anew which tools wait for an operator: one was accepted, or another process met a change."""
        for listing in (*self._listings.values(), *self._own.all()):
            await listing.repin()

    async def keep_fresh(self, seconds: float) -> None:
        """Read the lists of remote backends again and again; a module says itself when its lists change."""
        while True:
            await asyncio.sleep(seconds)
            await self.turn(seconds)

    async def turn(self, seconds: float) -> None:
        """Read them once. Of several replicas one reads each backend, and the others take over what it found."""
        remote = [each for each in self._listings.values() if not each.backend.trusted]
        await asyncio.gather(*(self._refresh_if_mine(each, seconds) for each in (*remote, *self._own.running())))

    async def _refresh_if_mine(self, listing: Listing, seconds: float) -> None:
        # Not given back: it ends by itself just before the next turn, so that each turn is one replica's.
        if self._bus is None or await self._bus.lease(listing.lease, seconds * 0.9) is not None:
            await self._refresh(listing)

    async def hear_replicas(self) -> None:
        """Take over what another replica has read, as long as this task runs."""
        if self._bus is None:
            return
        async with self._bus.subscribe(TOPIC) as news:
            async for message in news:
                if message["worker"] == self._bus.worker:
                    continue
                namespace, whose = str(message["namespace"]), message.get("whose")
                listing = self._listings.get(namespace) if whose is None else self._own.get(namespace, whose)
                if listing is not None:
                    await listing.take_over()

    def on_change(self, listener: Listener) -> None:
        self._listeners.append(listener)

    @property
    def snapshots(self) -> Mapping[str, Snapshot]:
        """By namespace; of those whose lists differ by tenant or principal, what the gateway itself was shown."""
        return {namespace: each.shown for namespace, each in self._listings.items()}

    def ages(self) -> dict[str, float]:
        """Seconds since each remote backend's lists were last read well."""
        now = time.time()
        return {ns: now - each.good_at for ns, each in self._listings.items() if not each.backend.trusted}

    # ---- inside ----

    def _in(self, path: str) -> Sequence[str]:
        """The namespaces at that path."""
        endpoint = self._endpoints.get(path)
        names = () if endpoint is None else endpoint.namespaces
        return tuple(self._listings) if names is None else [ns for ns in names if ns in self._listings]

    def _of(self, namespace: str, caller: Caller | None) -> Listing:
        """The one that this caller is shown."""
        own = self._own.of(namespace, caller) if caller is not None else None
        return own if own is not None else self._listings[namespace]

    def _build(self, caller: Caller, path: str) -> View | None:
        endpoint = self._endpoints.get(path)
        if endpoint is None or (endpoint.server is not None and not self._sight.enters(caller, endpoint.server)):
            return None
        mine = [self._of(ns, caller).shown for ns in self._in(path) if self._sight.has(caller, ns)]
        if not mine and endpoint.namespaces is not None:
            return None
        sight = self._sight
        return View(mine, endpoint.mode, self._naming, partial(sight.sees, caller), partial(sight.lists, caller))

    async def _refresh(self, listing: Listing, said: ListChange | None = None, read: Read | None = None) -> None:
        self._read_at[listing] = time.monotonic()
        await listing.refresh(said, read)

    def _forget(self, namespace: str) -> None:
        """Whatever is still being read of it comes too late."""
        for listing in (self._listings.get(namespace), *self._own.drop(namespace)):
            if listing is not None:
                listing.dropped = True

    def _swapped(self, listing: Listing, changes: Sequence[ListChange]) -> None:
        whose = listing.whose
        if whose is None:
            self._views.clear()
        else:
            theirs = [key for key in self._views if key[2] == whose or key[2].startswith(f"{whose}/")]
            for key in theirs:
                del self._views[key]
        self._tell(listing.backend.namespace, changes)

    def _changed(self, listing: Listing, change: ListChange) -> None:
        namespace = listing.backend.namespace
        if change.kind == "resource":
            self._tell(namespace, [change])
            return
        # What a server of somebody's own says is no news to the others.
        whose = listing if change.owner is None else self._own.get(namespace, change.owner)
        if whose is None:
            return
        if (said := self._said.get(whose)) is not None:
            said.append(change)  # many sessions with one server may all be told of one change
        else:
            self._said[whose] = [change]
            self._start(self._refresh_as_said(whose))

    async def _refresh_as_said(self, listing: Listing) -> None:
        try:
            while said := self._said[listing]:
                self._said[listing] = []
                for change in dict.fromkeys(said):
                    await self._refresh(listing, change)
        finally:
            del self._said[listing]

    def _start(self, refreshing: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(refreshing)
        self._refreshing.add(task)
        task.add_done_callback(self._refreshing.discard)
        return task

    def _tell(self, namespace: str, changes: Sequence[ListChange]) -> None:
        for listener in self._listeners:
            for change in changes:
                listener(namespace, change)


def _always(route: Route) -> bool:
    return True
