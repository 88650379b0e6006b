"""The validate stage: checks the arguments against the size limits, then against the tool's input schema.

Then it checks the flags of `_meta`: a dry run of a writing tool that has none ends here. The stage runs before
authorize, because Cedar gives no decision on ill-typed input.
"""

from collections.abc import Awaitable
from typing import Any, cast

import msgspec

from gateway.contract import Call, Handler, Json, Result, Route, read_flag
from gateway.errors import Fault, Kind


class Validate:
    """Raises `Fault(TOO_LARGE)` or `Fault(INVALID_INPUT)`."""

    def __init__(
        self, max_bytes: int, max_depth: int = 32, max_keys: int = 10_000, max_string: int = 1024 * 1024
    ) -> None:
        self._max_bytes = max_bytes
        self._max_depth = max_depth
        self._max_keys = max_keys
        self._max_string = max_string
        # A message up to this size cannot exceed the string or key limits; without nested arguments, nor the depth.
        self._small_message = min(max_string, 2 * max_keys)

    def __call__(self, call: Call, call_next: Handler) -> Awaitable[Result]:
        # The message size is an upper bound of the arguments' size: only large messages are measured.
        arguments = call.arguments
        if call.body_bytes > self._max_bytes:
            self._check_size(arguments)
        if call.body_bytes > self._small_message or not _NESTED.isdisjoint(map(type, arguments.values())):
            self._check_structure(arguments)
        route = call.route
        if route is not None and route.check is not None:
            route.check(arguments)
        meta = call.meta
        if "dryRun" in meta or "approved" in meta:
            _check_flags(meta, route)
        return call_next(call)

    def _check_size(self, arguments: object) -> None:
        size = len(msgspec.json.encode(arguments))
        if size > self._max_bytes:
            raise Fault(
                Kind.TOO_LARGE,
                "The arguments exceed the limit for one call.",
                details={"payload_bytes": size, "max_bytes": self._max_bytes},
            )

    def _check_structure(self, arguments: dict[str, Any]) -> None:
        """Check string length, depth and key count, iteratively; stop at the first violation."""
        keys, pending = 0, [(cast("Any", arguments), 1)]
        while pending:
            value, depth = pending.pop()
            if isinstance(value, str):
                if len(value) > self._max_string:
                    raise _too_large("text", len(value), self._max_string)
                continue
            if not isinstance(value, dict | list):
                continue
            if depth > self._max_depth:
                raise _too_large("depth", depth, self._max_depth)
            container = cast("dict[str, Any] | list[Any]", value)
            keys += len(container)
            if keys > self._max_keys:
                raise _too_large("members", keys, self._max_keys)
            inner = container.values() if isinstance(container, dict) else container
            pending += [(item, depth + 1) for item in inner]
            if isinstance(container, dict):
                pending += [(key, depth + 1) for key in container]


def _check_flags(meta: Json, route: Route | None) -> None:
    read_flag(meta, "approved")
    if read_flag(meta, "dryRun") and route is not None and not route.allows_dry_run:
        raise Fault(
            Kind.INVALID_INPUT,
            f"Tool {route.canonical!r} has no dry run: the call would change data. Nothing was done.",
            details={"validation_path": "_meta.dryRun", "validation_rule": "dryRun"},
            suggested_fix="Repeat the call without dryRun to make the change.",
        )


_NESTED = frozenset({dict, list})


def _too_large(bound: str, found: int, limit: int) -> Fault:
    message = f"The arguments exceed the limit of {bound} for one call."
    return Fault(Kind.TOO_LARGE, message, details={"bound": bound, "found": found, "most": limit})
