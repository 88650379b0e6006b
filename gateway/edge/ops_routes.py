"""The route `/metrics` (Prometheus text)."""

from collections.abc import Awaitable
from typing import Final, Protocol

from fastapi import APIRouter, Request, Response

from gateway.edge.api.authorization import AdminAuthorization, Authenticate
from gateway.edge.health import OPERATOR_PORT

_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class MetricsText(Protocol):
    def __call__(self, *, with_tenants: bool) -> Awaitable[str]:
        """The metrics in Prometheus text; without the names of tenants, their values are added up."""
        ...


def metrics_router(text: MetricsText, authenticate: Authenticate, *, public: bool) -> APIRouter:
    """Build `/metrics`. It needs `mcp:admin`, unless on the operators' port.

    If `public`, requests without a credential get the metrics without the names of tenants.
    """
    router = APIRouter(tags=["metrics"])
    authorization = AdminAuthorization(authenticate)

    @router.get("/metrics")
    async def metrics(request: Request) -> Response:  # pyright: ignore[reportUnusedFunction]
        is_anonymous = public and "authorization" not in request.headers
        needs_admin = not is_anonymous and not request.scope.get(OPERATOR_PORT)
        if needs_admin and (refused := await authorization.check(request)) is not None:
            return refused
        with_tenants = needs_admin or bool(request.scope.get(OPERATOR_PORT))
        return Response(await text(with_tenants=with_tenants), media_type=_TYPE, headers={"cache-control": "no-store"})

    return router
