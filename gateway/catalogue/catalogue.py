"""The catalogue: the lists of all backends, and the views that callers get of them.

The endpoints ask `Catalogue.view` on every call. Lists are read in the background, so a list request does not wait for
a backend; only the first read of an isolated server is waited for, and only for a limited time.
"""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol
from weakref import WeakKeyDictionary

from gateway.catalogue.definition_guard import PinGuard
from gateway.catalogue.isolated_lists import IsolatedListings
from gateway.catalogue.list_format import LISTED, ListFormat, ToolPresentation
from gateway.catalogue.listing import ALL_LISTS, TOPIC, Listing, ListingPolicy, Read
from gateway.catalogue.names import Mode
from gateway.catalogue.persistence import ListingStore, NullListingStore
from gateway.catalogue.shape import PLAIN, EndpointShape, Shape
from gateway.catalogue.snapshot import Snapshot
from gateway.catalogue.view import View
from gateway.contract import Backend, Bus, Call, Caller, ListChange, Route

log = logging.getLogger("gatehouse.catalogue")

MAX_VIEWS: Final = 1024
MAX_REPORTED: Final = 1000
REREAD_SECONDS: Final = 1.0
MISSED_SECONDS: Final = 10.0
FIRST_READ_SECONDS: Final = 3.0


class ViewPolicy(Protocol):
    """Decides which part of the catalogue a caller may see."""

    def view_key(self, caller: Caller) -> Hashable:
        """A cache key: equal for callers that get the same view."""
        ...

    def can_enter(self, caller: Caller, server: str) -> bool:
        """Whether the caller's tenant may use this virtual server."""
        ...

    def has_backend(self, caller: Caller, namespace: str) -> bool:
        """Whether the caller's tenant may use this backend."""
        ...

    def can_see(self, caller: Caller, route: Route) -> bool:
        """Whether the caller may resolve this name."""
        ...

    def can_list(self, caller: Caller, route: Route) -> bool:
        """Whether the caller's lists include this item."""
        ...


@dataclass(frozen=True, slots=True)
class McpEndpointConfig:
    """An MCP endpoint: its path, the backends it serves, and how it names their tools."""

    path: str
    mode: Mode
    namespaces: tuple[str, ...] | None = None
    """None serves all backends."""
    server: str | None = None
    """Name of the virtual server, if the endpoint is one."""
    shape: Shape = PLAIN
    presentation: ToolPresentation = LISTED


Listener = Callable[[str, ListChange], None]


class Catalogue:
    """Holds one listing per backend and caches the views built from their snapshots.

    A changed listing replaces its snapshot as a whole and invalidates the views that contain it.
    """

    def __init__(
        self,
        view_policy: ViewPolicy,
        list_format: ListFormat,
        keep_stale: float = 86_400.0,
        store: ListingStore | None = None,
        bus: Bus | None = None,
    ) -> None:
        self._bus = bus
        self._listing_policy = ListingPolicy(store or NullListingStore(), bus, keep_stale, self._on_swap)
        self._view_policy = view_policy
        self._list_format = list_format
        self._listings: dict[str, Listing] = {}
        self._isolated = IsolatedListings(self._listing_policy)
        self._endpoints: dict[str, McpEndpointConfig] = {}
        self._shapes: dict[str, Shape] = {}
        """Shapes of backends, by namespace."""
        self._reported: set[tuple[str, str]] = set()
        """Problems of shapes that are logged already, with the path of their endpoint."""
        self._views: OrderedDict[tuple[str, Hashable, str], View] = OrderedDict()
        self._read_at: WeakKeyDictionary[Listing, float] = WeakKeyDictionary()
        self._rereads: WeakKeyDictionary[Listing, asyncio.Task[None]] = WeakKeyDictionary()
        self._reread_for: WeakKeyDictionary[Listing, dict[str, float]] = WeakKeyDictionary()
        """When each tenant last had the lists read for a name that was not found."""
        self._pending_changes: dict[Listing, list[ListChange]] = {}
        """Changes reported while the lists of that listing are being read."""
        self._listeners: list[Listener] = []
        self._refreshing: set[asyncio.Task[None]] = set()

    # ---- views, used on every call ----

    def view(self, caller: Caller, path: str) -> View | None:
        """The caller's view of an endpoint. None if the endpoint does not exist or the caller may use no part of it."""
        key = (
            path,
            self._view_policy.view_key(caller),
            caller.principal if self._isolated.is_per_user else caller.tenant,
        )
        view = self._views.get(key)
        if view is None:
            view = self._build_view(caller, path)
            if view is None:
                return None
            self._views[key] = view
            if len(self._views) > MAX_VIEWS:
                self._views.popitem(last=False)
        return view

    def full_view(self) -> View:
        """A view of everything that is served, without access checks. For operators."""
        return View(self.snapshots.values(), "underscore", self._list_format, _always, _always)

    # ---- reads triggered by a call ----

    async def load_isolated_lists(self, call: Call) -> None:
        """Read the lists of the caller's isolated servers. Waits for the first read, up to `FIRST_READ_SECONDS`."""
        if not self._isolated.namespaces:
            return
        caller = call.caller
        reads = [
            self._isolated.open(self._listings[namespace], caller, call.client, self._spawn)
            for namespace in self._namespaces_at(call.endpoint)
            if namespace in self._isolated.namespaces and self._has_backend(caller, namespace)
        ]
        if in_progress := [each for each in reads if each is not None]:
            await asyncio.wait(in_progress, timeout=FIRST_READ_SECONDS)

    def guard(self, namespace: str) -> PinGuard:
        """The guard of the remote backend with this namespace."""
        return PinGuard(namespace, self._open_isolated_lists, self._find_listing, self._find_listing_for)

    async def reread(self, namespaces: Iterable[str], call: Call | None = None) -> bool:
        """Read these backends' lists again, each at most once per `REREAD_SECONDS`. True if any was read.

        Calls join a read in progress. After a call whose name was not found, the calls of its tenant read the same
        lists again only after `MISSED_SECONDS`: unknown names must not make the gateway flood a server.
        """
        if call is not None:
            await self.load_isolated_lists(call)
        listings = [self._listing_for(ns, call.caller if call else None) for ns in namespaces if ns in self._listings]
        reads = [read for each in listings if (read := self._start_reread(each, call)) is not None]
        if reads:
            await asyncio.wait(reads)
        return bool(reads)

    def _start_reread(self, listing: Listing, call: Call | None) -> "asyncio.Task[None] | None":
        """The read of these lists that is in progress, or a new one if it is due."""
        now, tenant = time.monotonic(), call.caller.tenant if call is not None else ""
        if (running := self._rereads.get(listing)) is not None and not running.done():
            return running
        if now - self._read_at.get(listing, 0.0) < REREAD_SECONDS:
            return None
        read_for = self._reread_for.setdefault(listing, {})
        if call is not None and now - read_for.get(tenant, -MISSED_SECONDS) < MISSED_SECONDS:
            return None
        read_for[tenant] = now
        read = self._isolated.reader_for(listing, call.caller, call.client) if call is not None else None
        self._rereads[listing] = task = self._spawn(self._refresh(listing, read=read))
        return task

    def forgive_reread(self, namespace: str, caller: Caller) -> None:
        """The read found what the call asked for: the tenant's next unknown name may have the lists read at once."""
        if namespace in self._listings:
            self._reread_for.get(self._listing_for(namespace, caller), {}).pop(caller.tenant, None)

    # ---- endpoints and backends ----

    def set_endpoints(
        self, endpoints: Mapping[str, McpEndpointConfig], shapes: Mapping[str, Shape] | None = None
    ) -> None:
        """Replace all endpoints, by path, and the shapes of backends, by namespace."""
        before = (self._endpoints, self._shapes)
        self._endpoints, self._shapes = dict(endpoints), dict(shapes or {})
        self._views.clear()
        self._reported.clear()
        if before[0] and before != (self._endpoints, self._shapes):
            for namespace in self._listings:
                self._notify(namespace, ALL_LISTS)

    async def add(self, backend: Backend, origin: str = "") -> None:
        """Add a backend with its stored lists. Without any, wait up to `FIRST_READ_SECONDS` for the first read.

        `origin` distinguishes this server from an earlier one with the same name.
        """
        self._mark_dropped(backend.namespace)
        listing = Listing(backend, origin, self._listing_policy, partial(backend.fetch_lists, None))
        recalled = await listing.restore()
        self._listings[backend.namespace] = listing
        self._isolated.add_backend(backend, origin)
        self._views.clear()
        backend.on_change(lambda change: self._on_backend_change(listing, change))
        reading = self._spawn(self._refresh(listing))
        if not recalled:
            # The read continues after the timeout: a slow server's tools are listed as soon as it answers.
            await asyncio.wait({reading}, timeout=FIRST_READ_SECONDS)

    def backend(self, namespace: str) -> Backend | None:
        """The backend that is served under this namespace."""
        listing = self._listings.get(namespace)
        return listing.backend if listing is not None else None

    def drop(self, namespace: str) -> None:
        """Remove a backend and notify listeners that its lists changed."""
        if namespace in self._listings:
            # Notify first: listeners use the current views to select the clients to notify.
            self._notify(namespace, ALL_LISTS)
            self._mark_dropped(namespace)
            del self._listings[namespace]
            self._views.clear()

    async def refresh(self, backend: Backend, reported: ListChange | None = None) -> None:
        """Read a backend's lists and notify listeners of differences and of the `reported` change.

        If the read fails, the last valid lists stay.
        """
        listing = self._listings.get(backend.namespace)
        if listing is not None and listing.backend is backend:
            await self._refresh(listing, reported)

    async def refresh_pins(self) -> None:
        """Reload which tools await acceptance, after an operator or another process changed the pins."""
        for listing in (*self._listings.values(), *self._isolated.all()):
            await listing.refresh_pins()

    async def refresh_periodically(self, seconds: float) -> None:
        """Read the lists of remote backends at this interval. Modules report their own changes."""
        while True:
            await asyncio.sleep(seconds)
            await self.refresh_remote(seconds)

    async def refresh_remote(self, seconds: float) -> None:
        """Read the lists of remote backends once. One replica reads each backend; the others load its result."""
        remote = [each for each in self._listings.values() if not each.backend.trusted]
        await asyncio.gather(
            *(self._refresh_with_lease(each, seconds) for each in (*remote, *self._isolated.running_listings()))
        )

    async def _refresh_with_lease(self, listing: Listing, seconds: float) -> None:
        # The lease is not released. It expires shortly before the next interval, so one replica reads per interval.
        if self._bus is None or await self._bus.lease(listing.lease_name, seconds * 0.9) is not None:
            await self._refresh(listing)

    async def follow_replicas(self) -> None:
        """Load the lists that other replicas have read, until this task is cancelled."""
        if self._bus is None:
            return
        async with self._bus.subscribe(TOPIC) as messages:
            async for message in messages:
                if message["worker"] == self._bus.worker:
                    continue
                namespace, owner = str(message["namespace"]), message.get("whose")
                if (listing := self._find_listing(namespace, owner)) is not None:
                    await listing.reload()

    def on_change(self, listener: Listener) -> None:
        """Call `listener(namespace, change)` for every change of a list or resource."""
        self._listeners.append(listener)

    @property
    def snapshots(self) -> Mapping[str, Snapshot]:
        """Snapshots by namespace. For isolated backends, the lists read with the gateway's own credential."""
        return {namespace: each.snapshot for namespace, each in self._listings.items()}

    def ages(self) -> dict[str, float]:
        """Seconds since the last successful read of each remote backend's lists."""
        now = time.time()
        return {ns: now - each.read_at for ns, each in self._listings.items() if not each.backend.trusted}

    # ---- internals ----

    def _namespaces_at(self, path: str) -> Sequence[str]:
        """The namespaces that the endpoint at `path` serves."""
        endpoint = self._endpoints.get(path)
        names = () if endpoint is None else endpoint.namespaces
        return tuple(self._listings) if names is None else [ns for ns in names if ns in self._listings]

    def _listing_for(self, namespace: str, caller: Caller | None) -> Listing:
        """The listing this caller sees: an isolated one if it exists, else the common one."""
        own = self._isolated.for_caller(namespace, caller) if caller is not None else None
        return own if own is not None else self._listings[namespace]

    def _find_listing(self, namespace: str, owner: str | None) -> Listing | None:
        return self._listings.get(namespace) if owner is None else self._isolated.get(namespace, owner)

    def _find_listing_for(self, namespace: str, caller: Caller) -> Listing | None:
        return self._listing_for(namespace, caller) if namespace in self._listings else None

    async def _open_isolated_lists(self, namespace: str, call: Call) -> None:
        """Wait until the caller's own lists of this backend are read or the read failed, if it has its own lists."""
        if namespace in self._isolated.namespaces and namespace in self._listings:
            reading = self._isolated.open(self._listings[namespace], call.caller, call.client, self._spawn)
            if reading is not None:
                await asyncio.wait({reading})

    def _build_view(self, caller: Caller, path: str) -> View | None:
        endpoint = self._endpoints.get(path)
        if endpoint is None or not self._can_enter(caller, endpoint):
            return None
        snapshots = [
            self._listing_for(ns, caller).snapshot for ns in self._namespaces_at(path) if self._has_backend(caller, ns)
        ]
        if not snapshots and endpoint.namespaces is not None:
            return None
        policy = self._view_policy
        view = View(
            snapshots,
            endpoint.mode,
            self._list_format,
            partial(policy.can_see, caller),
            partial(policy.can_list, caller),
            EndpointShape(backends=self._shapes, server=endpoint.shape, path=path),
            endpoint.presentation,
        )
        self._report(path, view.problems)
        return view

    def _can_enter(self, caller: Caller, endpoint: McpEndpointConfig) -> bool:
        """Whether the caller's tenant may use the endpoint: both its own settings and those of the tenant decide."""
        if not endpoint.shape.admits(caller.tenant):
            return False
        return endpoint.server is None or self._view_policy.can_enter(caller, endpoint.server)

    def _has_backend(self, caller: Caller, namespace: str) -> bool:
        shape = self._shapes.get(namespace, PLAIN)
        return shape.admits(caller.tenant) and self._view_policy.has_backend(caller, namespace)

    def _report(self, path: str, problems: Sequence[str]) -> None:
        for problem in problems:
            if (path, problem) not in self._reported and len(self._reported) < MAX_REPORTED:
                self._reported.add((path, problem))
                log.warning("catalogue %s: a rule cannot be applied: %s", path, problem)

    async def _refresh(self, listing: Listing, reported: ListChange | None = None, read: Read | None = None) -> None:
        self._read_at[listing] = time.monotonic()
        await listing.refresh(reported, read)

    def _mark_dropped(self, namespace: str) -> None:
        """Discard the results of reads that are still in progress."""
        for listing in (self._listings.get(namespace), *self._isolated.drop_backend(namespace)):
            if listing is not None:
                listing.dropped = True

    def _on_swap(self, listing: Listing, changes: Sequence[ListChange]) -> None:
        owner = listing.owner
        if owner is None:
            self._views.clear()
        else:
            owned = [key for key in self._views if key[2] == owner or key[2].startswith(f"{owner}/")]
            for key in owned:
                del self._views[key]
        self._notify(listing.backend.namespace, changes)

    def _on_backend_change(self, listing: Listing, change: ListChange) -> None:
        namespace = listing.backend.namespace
        if change.kind == "resource":
            self._notify(namespace, [change])
            return
        # A change of an isolated server concerns its owner only.
        changed = listing if change.owner is None else self._isolated.get(namespace, change.owner)
        if changed is None:
            return
        if (pending := self._pending_changes.get(changed)) is not None:
            pending.append(change)  # several sessions with one server may report the same change
        else:
            self._pending_changes[changed] = [change]
            self._spawn(self._refresh_pending(changed))

    async def _refresh_pending(self, listing: Listing) -> None:
        try:
            while pending := self._pending_changes[listing]:
                self._pending_changes[listing] = []
                for change in dict.fromkeys(pending):
                    await self._refresh(listing, change)
        finally:
            del self._pending_changes[listing]

    def _spawn(self, refresh: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(refresh)
        self._refreshing.add(task)
        task.add_done_callback(self._refreshing.discard)
        return task

    def _notify(self, namespace: str, changes: Sequence[ListChange]) -> None:
        for listener in self._listeners:
            for change in changes:
                listener(namespace, change)


def _always(route: Route) -> bool:
    return True
