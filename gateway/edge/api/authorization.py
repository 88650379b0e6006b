"""The way into the operator's API: a credential for the whole house with the scope `mcp:admin`, and one place that
answers a fault."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import msgspec
from fastapi import Request, Response

from gateway.contract import Caller
from gateway.contract.caller import ADMIN
from gateway.edge.authentication import check_audience
from gateway.edge.error_response import refusal
from gateway.edge.headers import fold
from gateway.edge.ip_rate_limit import Gate
from gateway.errors import TABLE, Fault, Kind

Authenticate = Callable[[Mapping[str, str], str], Awaitable[Caller]]
"""Headers and client address -> who calls. Raises `Fault`."""

SCOPE: Final = ADMIN


class AdminAuthorization:
    """Gives the operator to `answer`, and answers what that raises."""

    def __init__(self, authenticate: Authenticate, gate: Gate | None = None) -> None:
        self._authenticate = authenticate
        self._gate = gate

    async def __call__(self, request: Request, answer: Callable[[Caller], Awaitable[object]]) -> Response:
        try:
            body = msgspec.json.encode(await answer(await self._operator(request)))
        except Fault as fault:
            return _refused(fault)
        return Response(body, media_type="application/json", headers={"cache-control": "no-store"})

    async def let_in(self, request: Request) -> Response | None:
        """None for an operator; the refusal for anybody else."""
        try:
            await self._operator(request)
        except Fault as fault:
            return _refused(fault)
        return None

    async def _operator(self, request: Request) -> Caller:
        if self._gate is not None:
            await self._gate(request)
        headers = fold(request.scope["headers"])
        caller = await self._authenticate(headers, request.client.host if request.client else "")
        check_audience(caller)
        if SCOPE not in caller.scopes:
            missing = {"missing_scopes": [SCOPE]}
            raise Fault(Kind.DENIED, f"This credential lacks the scope {SCOPE}.", details=missing)
        return caller


def _refused(fault: Fault) -> Response:
    headers, body = refusal(fault)
    response = Response(body, TABLE[fault.kind].http)
    response.raw_headers = headers
    if fault.kind is Kind.UNAUTHENTICATED:
        response.headers["www-authenticate"] = "Bearer"
    return response
