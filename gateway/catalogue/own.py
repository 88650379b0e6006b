"""The lists of servers that a tenant or a principal has to itself."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any, Final

from gateway.catalogue.listing import Keeping, Listing
from gateway.contract import Backend, Caller, Client, OwnLists

MAX_LISTINGS: Final = 1024
"""Whichever was not asked for longest makes room; it is remembered all the same."""

Start = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]


class OwnListings:
    """A listing is made when its owner first asks for a list; until it was read, the owner sees what everybody sees."""

    def __init__(self, keeping: Keeping) -> None:
        self._keeping = keeping
        self._served: dict[str, tuple[OwnLists, str]] = {}
        self._listings: OrderedDict[tuple[str, str], tuple[Listing, Caller, asyncio.Task[None]]] = OrderedDict()
        self.by_user = False
        """Whether any of them differs from one principal to the next."""

    @property
    def namespaces(self) -> Iterable[str]:
        return self._served.keys()

    def serve(self, backend: Backend, origin: str) -> None:
        if backend.own is not None:
            self._served[backend.namespace] = (backend.own, origin)
        self.by_user = any(own.each == "user" for own, _ in self._served.values())

    def drop(self, namespace: str) -> list[Listing]:
        """Those that are shown no more."""
        self._served.pop(namespace, None)
        return [self._listings.pop(key)[0] for key in list(self._listings) if key[0] == namespace]

    def all(self) -> list[Listing]:
        return [listing for listing, _, _ in self._listings.values()]

    def get(self, namespace: str, whose: str) -> Listing | None:
        found = self._listings.get((namespace, whose))
        return found[0] if found is not None else None

    def of(self, namespace: str, caller: Caller) -> Listing | None:
        served = self._served.get(namespace)
        return self.get(namespace, _whose(served[0], caller)) if served is not None else None

    def running(self) -> list[Listing]:
        """Those whose server runs: to read the others' lists again, a process would have to be started."""
        known = [(self._served[key[0]][0], *each) for key, each in self._listings.items()]
        return [listing for own, listing, caller, _ in known if own.running(caller)]

    def opened(self, common: Listing, caller: Caller, client: Client, start: Start) -> "asyncio.Task[None] | None":
        """Their first reading, or what is left of it; None when it is over."""
        namespace = common.backend.namespace
        own, origin = self._served[namespace]
        key = (namespace, _whose(own, caller))
        if (known := self._listings.get(key)) is not None:
            self._listings.move_to_end(key)
            return None if known[2].done() else known[2]
        listing = Listing(common.backend, origin, self._keeping, partial(own.offer, caller, client), key[1], common)
        opening = start(_open(listing, start))
        self._listings[key] = (listing, caller, opening)
        while len(self._listings) > MAX_LISTINGS:
            _, (oldest, _, _) = self._listings.popitem(last=False)
            oldest.dropped = True
        return opening


async def _open(listing: Listing, start: Start) -> None:
    """What is remembered is shown at once, and read anew meanwhile."""
    if await listing.recall():
        start(listing.refresh())
    else:
        await listing.refresh()


def _whose(own: OwnLists, caller: Caller) -> str:
    return caller.tenant if own.each == "tenant" else caller.principal
