"""Decides how a failed call appears to its client: the JSON-RPC error code, or a tool result with `isError`.

Used by `gateway.protocol` for the response and by `gateway.telemetry` for spans and metrics, so both agree.
"""

from typing import Final, cast

from gateway.contract import Call
from gateway.errors import TABLE, Fault, ForeignError, Kind, UnknownName

INVALID_PARAMS: Final = -32602
RESOURCE_NOT_FOUND: Final = -32002


def rpc_code(kind: Kind, *, modern: bool) -> int:
    """Return the JSON-RPC error code of a kind in the given era."""
    row = TABLE[kind]
    return row.modern if modern else row.handshake


def rpc_code_of(exc: Fault | ForeignError, call: Call) -> int | None:
    """Return the JSON-RPC error code of a failed call, or None if it is rendered as a result with `isError`."""
    modern = call.client.modern
    if isinstance(exc, ForeignError):
        return _translate_code(exc, modern=modern)
    if isinstance(exc, UnknownName):
        return RESOURCE_NOT_FOUND if exc.uri is not None and not modern else INVALID_PARAMS
    route = call.resolved_route
    if route is None or call.method != "tools/call" or route.backend.manifest.error_style == "protocol":
        return rpc_code(exc.kind, modern=modern)
    return None


def _translate_code(exc: ForeignError, *, modern: bool) -> int:
    """Translate the code of an unknown resource, which differs between the eras."""
    data = cast("object", exc.data)
    if modern and exc.code == RESOURCE_NOT_FOUND:
        return INVALID_PARAMS
    if not modern and exc.code == INVALID_PARAMS and isinstance(data, dict) and "uri" in data:
        return RESOURCE_NOT_FOUND
    return exc.code
