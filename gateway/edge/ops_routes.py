"""`/metrics`, as Prometheus reads it.

Liveness and readiness.
"""

from collections.abc import Awaitable, Callable
from typing import Final

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.edge.api.authorization import AdminAuthorization, Authenticate

_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_OPS: Final = "gatehouse.ops"


def metrics_router(text: Callable[[], Awaitable[str]], authenticate: Authenticate, *, free: bool) -> APIRouter:
    """Open to everybody where `free`, or on the operators' own port; elsewhere it needs `mcp:admin`."""
    router = APIRouter(tags=["metrics"])
    door = AdminAuthorization(authenticate)

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


PATHS: Final = ("/healthz", "/readyz")

_NO_STORE: Final = {"cache-control": "no-store"}


def health_router(ready: Callable[[], str | None], *, show_reason: bool = False) -> APIRouter:
    """`ready` says None, or the reason why not, which is shown only where operators look."""
    router = APIRouter(tags=["health"], include_in_schema=False)

    @router.api_route("/healthz", methods=["GET", "HEAD"])
    async def healthz() -> JSONResponse:  # pyright: ignore[reportUnusedFunction]  # the decorator registers it
        return JSONResponse({"status": "ok"}, headers=_NO_STORE)

    @router.api_route("/readyz", methods=["GET", "HEAD"])
    async def readyz() -> JSONResponse:  # pyright: ignore[reportUnusedFunction]  # the decorator registers it
        reason = ready()
        if reason is None:
            return JSONResponse({"status": "ready"}, headers=_NO_STORE)
        shown = {"status": "unready", "reason": reason} if show_reason else {"status": "unready"}
        return JSONResponse(shown, 503, headers=_NO_STORE)

    return router
