"""What a failed call is to its client: a JSON-RPC error of some code, or a result that says so.

The north door answers by it, and traces and metrics tell it by the same rule.
"""

from typing import Final, cast

from gateway.contract import Call
from gateway.errors import TABLE, Fault, ForeignError, Kind, UnknownName

INVALID_PARAMS: Final = -32602
RESOURCE_NOT_FOUND: Final = -32002


def number(kind: Kind, *, modern: bool) -> int:
    row = TABLE[kind]
    return row.modern if modern else row.handshake


def code_of(exc: Fault | ForeignError, call: Call) -> int | None:
    """The code of the JSON-RPC error; None where the failure is a tool's result with `isError`."""
    modern = call.client.modern
    if isinstance(exc, ForeignError):
        return _in_era(exc, modern=modern)
    if isinstance(exc, UnknownName):
        return RESOURCE_NOT_FOUND if exc.uri is not None and not modern else INVALID_PARAMS
    route = call.resolved_route
    if route is None or call.method != "tools/call" or route.backend.manifest.error_style == "protocol":
        return number(exc.kind, modern=modern)
    return None


def _in_era(exc: ForeignError, *, modern: bool) -> int:
    """The two eras number an unknown resource differently."""
    data = cast("object", exc.data)
    if modern and exc.code == RESOURCE_NOT_FOUND:
        return INVALID_PARAMS
    if not modern and exc.code == INVALID_PARAMS and isinstance(data, dict) and "uri" in data:
        return RESOURCE_NOT_FOUND
    return exc.code
