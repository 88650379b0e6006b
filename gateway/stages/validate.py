"""Arguments are bounded, then checked against the tool's schema, before policy sees them."""

from collections.abc import Awaitable

import msgspec

from gateway.contract import Call, Handler, Result
from gateway.errors import Fault, Kind


class Validate:
    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes

    def __call__(self, call: Call, call_next: Handler) -> Awaitable[Result]:
        # The message bounds its arguments: only a large one is measured.
        if call.body_bytes > self._max_bytes:
            self._measure(call.arguments)
        route = call.route
        if route is not None and route.check is not None:
            route.check(call.arguments)
        return call_next(call)

    def _measure(self, arguments: object) -> None:
        size = len(msgspec.json.encode(arguments))
        if size > self._max_bytes:
            raise Fault(
                Kind.TOO_LARGE,
                "The arguments exceed the limit for one call.",
                details={"payload_bytes": size, "max_bytes": self._max_bytes},
            )
