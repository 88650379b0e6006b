"""The routes `/metrics` (Prometheus text), `/healthz` and `/readyz`."""

from collections.abc import Callable
from typing import Final, Protocol

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.edge.api.authorization import AdminAuthorization, Authenticate

_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_OPERATOR_PORT: Final = "gatehouse.ops"


class MetricsText(Protocol):
    async def __call__(self, *, with_tenants: bool) -> str:
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
        needs_admin = not is_anonymous and not request.scope.get(_OPERATOR_PORT)
        if needs_admin and (refused := await authorization.check(request)) is not None:
            return refused
        with_tenants = needs_admin or bool(request.scope.get(_OPERATOR_PORT))
        return Response(await text(with_tenants=with_tenants), media_type=_TYPE, headers={"cache-control": "no-store"})

    return router


def for_operators(app: ASGIApp) -> ASGIApp:
    """Wrap the app for the operators' port."""

    async def mark(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, _OPERATOR_PORT: True}, receive, send)

    return mark


HEALTH_PATHS: Final = ("/healthz", "/readyz")
_NO_STORE: Final = {"cache-control": "no-store"}


def health_router(ready: Callable[[], str | None], *, show_reason: bool = False) -> APIRouter:
    """Build the probes. `ready` returns None or the reason for not being ready, included only if `show_reason`."""
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
