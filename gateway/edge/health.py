"""Liveness and readiness."""

from collections.abc import Callable
from typing import Final

from fastapi import APIRouter
from fastapi.responses import JSONResponse

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
