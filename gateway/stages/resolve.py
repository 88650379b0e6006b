"""The resolve stage: rejects a call without a route. Hidden and unknown names get the same error.

It also adds the arguments that the operator of a shaped endpoint has set, so that all later stages see them.
"""

from collections.abc import Awaitable, Callable

import msgspec
from msgspec.structs import replace

from gateway.contract import Call, Caller, Handler, Result, Route
from gateway.errors import Fault, Kind, UnknownName
from gateway.telemetry.log import clean

_NOUN = {"tools/call": ("tool", "name"), "prompts/get": ("prompt", "name"), "resources/read": ("resource", "uri")}


class Resolve:
    """Raises `UnknownName` for a name that is not in the caller's view.

    `refresh_and_find` refreshes the lists (at most once a second) and looks the name up again. `denial` returns the
    fault of a caller whose whole view is empty; that caller gets it instead of `UnknownName`.
    """

    def __init__(
        self,
        refresh_and_find: Callable[[Call], Awaitable[Route | None]],
        denial: Callable[[Caller], Fault | None] | None = None,
    ) -> None:
        self._refresh_and_find = refresh_and_find
        self._denial = denial

    def __call__(self, call: Call, call_next: Handler) -> Awaitable[Result]:
        route = call.route
        if route is None:
            return self._resolve_late(call, call_next)
        return call_next(call if route.shape is None else _complete_arguments(call, route))

    async def _resolve_late(self, call: Call, call_next: Handler) -> Result:
        if self._denial is not None and (fault := self._denial(call.caller)) is not None:
            raise fault
        route = await self._refresh_and_find(call)
        if route is None:
            noun, key = _NOUN.get(call.method, ("reference", "ref"))
            name = str(call.params.get(key))
            # A credential pasted as a name must not appear in the error message, which is logged and displayed.
            raise UnknownName(f"Unknown {noun}: {clean(name, 128)}", uri=name if noun == "resource" else None)
        call.record.late_route = route
        return await call_next(replace(call, route=route) if route.shape is None else _complete_arguments(call, route))


def _complete_arguments(call: Call, route: Route) -> Call:
    """Add the fixed arguments of a shaped tool. Raises `Fault` if the caller sent one that is withheld."""
    assert route.shape is not None
    if refused := sorted(route.shape.withheld & call.arguments.keys()):
        raise Fault(
            Kind.INVALID_INPUT,
            f"{refused[0]} is not an argument of this tool here: the operator of this endpoint sets it.",
            details={"validation_path": refused[0], "validation_rule": "additionalProperties"},
            suggested_fix=f"Repeat the call without {', '.join(refused)}.",
        )
    arguments = route.shape.complete(call.arguments)
    added = len(msgspec.json.encode(route.shape.fixed))
    params = {**call.params, "arguments": arguments}
    return replace(call, route=route, params=params, body_bytes=call.body_bytes + added)
