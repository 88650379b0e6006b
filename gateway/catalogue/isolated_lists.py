"""The lists of servers that a tenant or a principal has to itself."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Hashable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from gateway.catalogue.listing import Listing, ListingPolicy, Read
from gateway.contract import Backend, Caller, ClientProfile, IsolatedLists

MAX_LISTINGS: Final = 1024
"""Whichever was not asked for longest makes room; it is remembered all the same."""

Start = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]


@dataclass(frozen=True, slots=True)
class _Known:
    listing: Listing
    caller: Caller
    kinds: "dict[Hashable, asyncio.Task[None]]"
    """The kinds of client that it was read for, each with its first reading."""


class IsolatedListings:
    """A listing is made when its owner first asks for a list; until it was read, the owner sees what everybody sees."""

    def __init__(self, keeping: ListingPolicy) -> None:
        self._keeping = keeping
        self._served: dict[str, tuple[IsolatedLists, str]] = {}
        self._known: OrderedDict[tuple[str, str], _Known] = OrderedDict()
        self.by_user = False
        """Whether any of them differs from one principal to the next."""

    @property
    def namespaces(self) -> Iterable[str]:
        return self._served.keys()

    def serve(self, backend: Backend, origin: str) -> None:
        if backend.isolated_lists is not None:
            self._served[backend.namespace] = (backend.isolated_lists, origin)
        self.by_user = any(own.isolation == "user" for own, _ in self._served.values())

    def drop(self, namespace: str) -> list[Listing]:
        """Those that are shown no more."""
        self._served.pop(namespace, None)
        return [self._known.pop(key).listing for key in list(self._known) if key[0] == namespace]

    def all(self) -> list[Listing]:
        return [known.listing for known in self._known.values()]

    def get(self, namespace: str, whose: str) -> Listing | None:
        known = self._known.get((namespace, whose))
        return known.listing if known is not None else None

    def of(self, namespace: str, caller: Caller) -> Listing | None:
        served = self._served.get(namespace)
        return self.get(namespace, _whose(served[0], caller)) if served is not None else None

    def running(self) -> list[Listing]:
        """Those whose server runs: to read the others' lists again, a process would have to be started."""
        known = [(self._served[key[0]][0], each) for key, each in self._known.items()]
        return [each.listing for own, each in known if own.is_running(each.caller)]

    def reading(self, listing: Listing, caller: Caller, client: ClientProfile) -> Read | None:
        """How to read it for this client, starting its server if need be; None: it is everybody's."""
        if listing.whose is None:
            return None
        return partial(self._served[listing.backend.namespace][0].fetch_lists, caller, client)

    def opened(
        self, common: Listing, caller: Caller, client: ClientProfile, start: Start
    ) -> "asyncio.Task[None] | None":
        """Their first reading for that kind of client, or what is left of it; None when it is over."""
        namespace = common.backend.namespace
        own, origin = self._served[namespace]
        key, kind = (namespace, _whose(own, caller)), own.kind(client)
        known = self._known.get(key)
        if known is None:
            listing = Listing(
                common.backend, origin, self._keeping, partial(own.fetch_lists, caller, None), key[1], common
            )
            opening = start(_open(listing, partial(own.fetch_lists, caller, client), start))
            self._known[key] = _Known(listing, caller, {kind: opening})
            self._make_room()
            return opening
        self._known.move_to_end(key)
        if kind not in known.kinds:
            known.kinds[kind] = start(known.listing.refresh(read=partial(own.fetch_lists, caller, client)))
        return None if known.kinds[kind].done() else known.kinds[kind]

    def _make_room(self) -> None:
        while len(self._known) > MAX_LISTINGS:
            _, oldest = self._known.popitem(last=False)
            oldest.listing.dropped = True


async def _open(listing: Listing, read: Read, start: Start) -> None:
    """What is remembered is shown at once, and read anew meanwhile."""
    if await listing.recall():
        start(listing.refresh(read=read))
    else:
        await listing.refresh(read=read)


def _whose(own: IsolatedLists, caller: Caller) -> str:
    return caller.tenant if own.isolation == "tenant" else caller.principal
