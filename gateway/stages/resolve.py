"""Refuse a name that leads nowhere: what is hidden and what is unknown are alike."""

from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from gateway.contract import Call, Caller, Handler, Result, Route
from gateway.errors import Fault, UnknownName
from gateway.telemetry.log import clean

_NOUN = {"tools/call": ("tool", "name"), "prompts/get": ("prompt", "name"), "resources/read": ("resource", "uri")}


class Resolve:
    """`find_again` reads the lists once more (at most once a second) and looks the name up again.

    `barred` says why a caller has nothing in view at all; then no name is called unknown to it, whatever the name.
    """

    def __init__(
        self,
        find_again: Callable[[Call], Awaitable[Route | None]],
        barred: Callable[[Caller], Fault | None] | None = None,
    ) -> None:
        self._find_again = find_again
        self._barred = barred

    def __call__(self, call: Call, call_next: Handler) -> Awaitable[Result]:
        return call_next(call) if call.route is not None else self._look_again(call, call_next)

    async def _look_again(self, call: Call, call_next: Handler) -> Result:
        if self._barred is not None and (fault := self._barred(call.caller)) is not None:
            raise fault
        route = await self._find_again(call)
        if route is None:
            noun, key = _NOUN.get(call.method, ("reference", "ref"))
            name = str(call.params.get(key))
            # Whoever pastes a credential where a name belongs does not get it back in words that are kept and shown.
            raise UnknownName(f"Unknown {noun}: {clean(name, 128)}", uri=name if noun == "resource" else None)
        call.record.late_route = route
        return await call_next(replace(call, route=route))
