"""Authorization of the operator API: a credential for `/mcp` with the scope `mcp:admin`. Renders faults as JSON."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import msgspec
from fastapi import Request, Response

from gateway.contract import Caller
from gateway.contract.caller import ADMIN
from gateway.edge.authentication import check_audience
from gateway.edge.error_response import render_fault
from gateway.edge.ip_rate_limit import Gate
from gateway.edge.request_parsing import fold_headers
from gateway.errors import TABLE, Fault, Kind

Authenticate = Callable[[Mapping[str, str], str], Awaitable[Caller]]
"""Headers and client address -> caller. Raises `Fault`."""

SCOPE: Final = ADMIN


class AdminAuthorization:
    """Calls a handler with the authenticated operator and encodes its result or fault.

    One of `scopes` is required; by default `mcp:admin`.
    """

    def __init__(
        self, authenticate: Authenticate, gate: Gate | None = None, scopes: tuple[str, ...] = (SCOPE,)
    ) -> None:
        self._authenticate = authenticate
        self._gate = gate
        self._scopes = scopes

    async def __call__(self, request: Request, answer: Callable[[Caller], Awaitable[object]]) -> Response:
        try:
            body = msgspec.json.encode(await answer(await self._operator(request)))
        except Fault as fault:
            return error_response(fault)
        return Response(body, media_type="application/json", headers={"cache-control": "no-store"})

    async def check(self, request: Request) -> Response | None:
        """Return None for an operator, the error response for anyone else."""
        try:
            await self._operator(request)
        except Fault as fault:
            return error_response(fault)
        return None

    async def _operator(self, request: Request) -> Caller:
        if self._gate is not None:
            await self._gate(request)
        headers = fold_headers(request.scope["headers"])
        caller = await self._authenticate(headers, request.client.host if request.client else "")
        check_audience(caller)
        if caller.scopes.isdisjoint(self._scopes):
            scope = self._scopes[0]
            raise Fault(
                Kind.DENIED,
                f"This credential lacks the scope {scope}. Create a key with it: gatehouse key create --scope {scope}.",
                details={"missing_scopes": [scope]},
            )
        return caller


def error_response(fault: Fault) -> Response:
    """Render a fault as JSON."""
    headers, body = render_fault(fault)
    response = Response(body, TABLE[fault.kind].http)
    response.raw_headers = headers
    if fault.kind is Kind.UNAUTHENTICATED:
        response.headers["www-authenticate"] = "Bearer"
    return response
