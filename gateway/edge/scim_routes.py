"""Routes of the SCIM service. The responses come from `gateway.auth.scim`."""

import json
from typing import Any, Final, Protocol

from fastapi import APIRouter, Request, Response

from gateway.edge.authentication import bearer_token
from gateway.edge.ip_rate_limit import IpRateLimiter
from gateway.edge.request_parsing import fold_headers, read_body
from gateway.errors import TABLE, Fault

_MAX_BODY: Final = 1024 * 1024
_RATE: Final = "6000/minute"
"""Requests per address. A provider that provisions a whole company sends many."""
_MEDIA_TYPE: Final = "application/scim+json"
_ERROR: Final = "urn:ietf:params:scim:api:messages:2.0:Error"


class ScimServer(Protocol):
    """The SCIM service. `handle` returns status, headers and a JSON body, or None for no body."""

    async def handle(self, method: str, path: str, query: dict[str, str], body: bytes, token: str) -> Any: ...


def scim_router(base_path: str, service: ScimServer, rate_limiter: IpRateLimiter) -> APIRouter:
    router = APIRouter(tags=["provisioning"])
    gate = rate_limiter.gate(base_path, _RATE)

    async def answer(request: Request) -> Response:
        try:
            await gate(request)
            body = await read_body(request.headers, request.receive, _MAX_BODY)
            token = bearer_token(fold_headers(request.scope["headers"]))
            path = request.path_params["path"]
            status, headers, content = await service.handle(
                request.method, path, dict(request.query_params), body, token
            )
        except Fault as fault:
            status = int(fault.details.get("http_status", 0)) or TABLE[fault.kind].http
            headers = [] if fault.retry_after is None else [("retry-after", str(max(1, round(fault.retry_after))))]
            content = {"schemas": [_ERROR], "status": str(status), "detail": fault.message}
        encoded = b"" if content is None else json.dumps(content).encode()
        response = Response(encoded, status, media_type=None if content is None else _MEDIA_TYPE)
        for name, value in (*headers, ("cache-control", "no-store")):
            response.headers.append(name, value)
        return response

    router.add_api_route(
        base_path + "/{path:path}", answer, methods=["GET", "POST", "PUT", "PATCH", "DELETE"], include_in_schema=False
    )
    return router
