"""The route `/metrics` (Prometheus text)."""

from collections.abc import Awaitable, Callable
from typing import Final

from fastapi import APIRouter, Request, Response

from gateway.edge.api.authorization import AdminAuthorization, Authenticate
from gateway.edge.health import OPERATOR_PORT

_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


def metrics_router(text: Callable[[], Awaitable[str]], authenticate: Authenticate, *, public: bool) -> APIRouter:
    """Build `/metrics`. It needs `mcp:admin`, unless `free` or on the operators' port."""
    router = APIRouter(tags=["metrics"])
    authorization = AdminAuthorization(authenticate)

    @router.get("/metrics")
    async def metrics(request: Request) -> Response:  # pyright: ignore[reportUnusedFunction]
        needs_admin = not public and not request.scope.get(OPERATOR_PORT)
        if needs_admin and (refused := await authorization.check(request)) is not None:
            return refused
        return Response(await text(), media_type=_TYPE, headers={"cache-control": "no-store"})

    return router
