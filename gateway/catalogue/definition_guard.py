"""Compares the definitions of remote tools with the accepted ones before calls are sent (`catalogue.pins: deny`).

A remote backend uses one guard. The catalogue creates it.
"""

from collections.abc import Awaitable, Callable

from gateway.catalogue.listing import Listing, Read
from gateway.contract import Call, Caller
from gateway.errors import Fault, ForeignError, Kind, UnknownName


class PinGuard:
    """`gateway.contract.DefinitionGuard` for the backend with this namespace."""

    def __init__(
        self,
        namespace: str,
        open_isolated: Callable[[str, Call], Awaitable[None]],
        listing: Callable[[str, str | None], Listing | None],
        listing_for: Callable[[str, Caller], Listing | None],
    ) -> None:
        self._namespace = namespace
        self._open_isolated = open_isolated
        self._listing = listing
        self._listing_for = listing_for

    async def prepare(self, call: Call) -> None:
        await self._open_isolated(self._namespace, call)

    async def compare(self, owner: str | None, read: Read) -> None:
        listing = self._listing(self._namespace, owner)
        if listing is None:
            raise self._not_compared()
        try:
            await listing.compare(read)
        except (ForeignError, TimeoutError) as exc:
            raise self._not_compared() from exc

    def check(self, call: Call) -> None:
        listing = self._listing_for(self._namespace, call.caller)
        if (route := call.route) is not None and (listing is None or route.name in listing.snapshot.unpinned):
            raise UnknownName(f"Unknown tool: {route.exposed}")

    def _not_compared(self) -> Fault:
        message = f"The tool definitions of {self._namespace} cannot be compared with the accepted ones. Try again."
        return Fault(Kind.UNAVAILABLE, message, retry_after=1.0)
