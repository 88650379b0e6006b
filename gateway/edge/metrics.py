"""`/metrics`, as Prometheus reads it."""

from collections.abc import Awaitable, Callable
from typing import Final

from fastapi import APIRouter, Request, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.edge.api.door import AdminDoor, Authenticate

_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_OPS: Final = "gatehouse.ops"


def metrics_router(text: Callable[[], Awaitable[str]], authenticate: Authenticate, *, free: bool) -> APIRouter:
    """Open to everybody where `free`, or on the operators' own port; elsewhere it needs `mcp:admin`."""
    router = APIRouter(tags=["metrics"])
    door = AdminDoor(authenticate)

    @router.get("/metrics")
    async def metrics(request: Request) -> Response:  # pyright: ignore[reportUnusedFunction]
        asked = not free and not request.scope.get(_OPS)
        if asked and (refused := await door.let_in(request)) is not None:
            return refused
        return Response(await text(), media_type=_TYPE, headers={"cache-control": "no-store"})

    return router


def for_operators(app: ASGIApp) -> ASGIApp:
    """The same app on the operators' own port."""

    async def marked(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, _OPS: True}, receive, send)

    return marked
