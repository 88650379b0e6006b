"""Listings of isolated servers: servers that run for one tenant or one principal. Used by `Catalogue`."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Hashable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from gateway.catalogue.listing import Listing, ListingPolicy, Read
from gateway.contract import Backend, Caller, ClientProfile, IsolatedLists

MAX_LISTINGS: Final = 1024
"""The least recently used listing is evicted first. Its lists stay in the store."""

Spawn = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]


@dataclass(frozen=True, slots=True)
class _Entry:
    listing: Listing
    caller: Caller
    first_reads: "dict[Hashable, asyncio.Task[None]]"
    """The first read for each kind of client."""


class IsolatedListings:
    """Creates a listing when its owner first requests a list. Until it is read, the owner sees the common lists."""

    def __init__(self, policy: ListingPolicy) -> None:
        self._policy = policy
        self._backends: dict[str, tuple[IsolatedLists, str]] = {}
        self._entries: OrderedDict[tuple[str, str], _Entry] = OrderedDict()
        self.is_per_user = False
        """Whether any backend is isolated by user rather than by tenant."""

    @property
    def namespaces(self) -> Iterable[str]:
        return self._backends.keys()

    def add_backend(self, backend: Backend, origin: str) -> None:
        if backend.isolated_lists is not None:
            self._backends[backend.namespace] = (backend.isolated_lists, origin)
        self.is_per_user = any(isolated.isolation == "user" for isolated, _ in self._backends.values())

    def drop_backend(self, namespace: str) -> list[Listing]:
        """Remove a backend and return its listings."""
        self._backends.pop(namespace, None)
        return [self._entries.pop(key).listing for key in list(self._entries) if key[0] == namespace]

    def all(self) -> list[Listing]:
        return [entry.listing for entry in self._entries.values()]

    def get(self, namespace: str, owner: str) -> Listing | None:
        entry = self._entries.get((namespace, owner))
        return entry.listing if entry is not None else None

    def for_caller(self, namespace: str, caller: Caller) -> Listing | None:
        backend = self._backends.get(namespace)
        return self.get(namespace, _owner_of(backend[0], caller)) if backend is not None else None

    def running_listings(self) -> list[Listing]:
        """Listings of running servers. Reading any other would start a process."""
        entries = [(self._backends[key[0]][0], entry) for key, entry in self._entries.items()]
        return [entry.listing for isolated, entry in entries if isolated.is_running(entry.caller)]

    def reader_for(self, listing: Listing, caller: Caller, client: ClientProfile) -> Read | None:
        """A function that reads the listing for this client, starting its server if needed. None if not isolated."""
        if listing.owner is None:
            return None
        return partial(self._backends[listing.backend.namespace][0].fetch_lists, caller, client)

    def open(self, common: Listing, caller: Caller, client: ClientProfile, spawn: Spawn) -> "asyncio.Task[None] | None":
        """Create the caller's listing if necessary. Returns the first read for this kind of client while it runs."""
        namespace = common.backend.namespace
        isolated, origin = self._backends[namespace]
        key, kind = (namespace, _owner_of(isolated, caller)), isolated.kind(client)
        entry = self._entries.get(key)
        if entry is None:
            listing = Listing(
                common.backend, origin, self._policy, partial(isolated.fetch_lists, caller, None), key[1], common
            )
            opening = spawn(_restore_or_read(listing, partial(isolated.fetch_lists, caller, client), spawn))
            self._entries[key] = _Entry(listing, caller, {kind: opening})
            self._evict()
            return opening
        self._entries.move_to_end(key)
        if kind not in entry.first_reads:
            entry.first_reads[kind] = spawn(entry.listing.refresh(read=partial(isolated.fetch_lists, caller, client)))
        return None if entry.first_reads[kind].done() else entry.first_reads[kind]

    def _evict(self) -> None:
        while len(self._entries) > MAX_LISTINGS:
            _, oldest = self._entries.popitem(last=False)
            oldest.listing.dropped = True


async def _restore_or_read(listing: Listing, read: Read, spawn: Spawn) -> None:
    """Restore stored lists and read in the background; without stored lists, wait for the read."""
    if await listing.restore():
        spawn(listing.refresh(read=read))
    else:
        await listing.refresh(read=read)


def _owner_of(isolated: IsolatedLists, caller: Caller) -> str:
    return caller.tenant if isolated.isolation == "tenant" else caller.principal
