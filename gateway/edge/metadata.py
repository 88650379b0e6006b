"""RFC 9728: which authorization server a client has to ask, for each endpoint."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse

from gateway.edge.challenge import METADATA
from gateway.edge.unserved import not_served

CACHED: Final = {"cache-control": "public, max-age=3600"}


def metadata_router(
    public_url: str, issuers: Sequence[str], scopes: Sequence[str], served: Callable[[str], bool]
) -> APIRouter:
    """At the root for `/mcp`, and by path for each endpoint; `served` says which there are."""
    router = APIRouter(tags=["discovery"])

    def document(endpoint: str) -> dict[str, Any]:
        return {
            "resource": public_url + endpoint,
            "authorization_servers": list(issuers),
            "scopes_supported": list(scopes),
            "bearer_methods_supported": ["header"],
            "resource_name": "Gatehouse",
        }

    @router.get(METADATA)
    async def root() -> JSONResponse:  # pyright: ignore[reportUnusedFunction]  # the decorator registers it
        return JSONResponse(document("/mcp"), headers=CACHED)

    @router.get(METADATA + "/{endpoint:path}")
    async def by_path(endpoint: str) -> Response:  # pyright: ignore[reportUnusedFunction]
        if not served(f"/{endpoint}"):
            # Never a document for a path that somebody made up.
            return not_served()
        return JSONResponse(document(f"/{endpoint}"), headers=CACHED)

    return router
