"""Arguments are bounded, then checked against the tool's schema, before policy sees them."""

from collections.abc import Awaitable
from typing import Any, cast

import msgspec

from gateway.contract import Call, Handler, Result
from gateway.errors import Fault, Kind


class Validate:
    def __init__(
        self, max_bytes: int, max_depth: int = 32, max_keys: int = 10_000, max_string: int = 1024 * 1024
    ) -> None:
        self._max_bytes = max_bytes
        self._max_depth = max_depth
        self._max_keys = max_keys
        self._max_string = max_string
        # A message this small holds no text that is too long, and not too many of anything; nor, without an object or
        # list among its arguments, anything too deep.
        self._small = min(max_string, 2 * max_keys)

    def __call__(self, call: Call, call_next: Handler) -> Awaitable[Result]:
        # The message bounds its arguments: only a large one is measured.
        arguments = call.arguments
        if call.body_bytes > self._max_bytes:
            self._measure(arguments)
        if call.body_bytes > self._small or not _NESTED.isdisjoint(map(type, arguments.values())):
            self._survey(arguments)
        route = call.route
        if route is not None and route.check is not None:
            route.check(arguments)
        return call_next(call)

    def _measure(self, arguments: object) -> None:
        size = len(msgspec.json.encode(arguments))
        if size > self._max_bytes:
            raise Fault(
                Kind.TOO_LARGE,
                "The arguments exceed the limit for one call.",
                details={"payload_bytes": size, "max_bytes": self._max_bytes},
            )

    def _survey(self, arguments: dict[str, Any]) -> None:
        """Without recursion, and no further than the first bound that does not hold."""
        keys, todo = 0, [(cast("Any", arguments), 1)]
        while todo:
            value, depth = todo.pop()
            if isinstance(value, str):
                if len(value) > self._max_string:
                    raise _beyond("text", len(value), self._max_string)
                continue
            if not isinstance(value, dict | list):
                continue
            if depth > self._max_depth:
                raise _beyond("depth", depth, self._max_depth)
            held = cast("dict[str, Any] | list[Any]", value)
            keys += len(held)
            if keys > self._max_keys:
                raise _beyond("members", keys, self._max_keys)
            inner = held.values() if isinstance(held, dict) else held
            todo += [(item, depth + 1) for item in inner]
            if isinstance(held, dict):
                todo += [(key, depth + 1) for key in held]


_NESTED = frozenset({dict, list})


def _beyond(what: str, found: int, most: int) -> Fault:
    told = f"The arguments exceed the limit of {what} for one call."
    return Fault(Kind.TOO_LARGE, told, details={"bound": what, "found": found, "most": most})
