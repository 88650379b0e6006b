"""`/api/v1/backends`: health of the backends of the operator's tenant; and the OpenAPI document."""

from collections.abc import Awaitable, Callable
from typing import Final, Literal

from fastapi import APIRouter, Request, Response
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, Field

from gateway.contract import Caller, Json
from gateway.edge.api.authorization import AdminAuthorization

PREFIX: Final = "/api/v1"

Report = Callable[[Caller], Awaitable[list[Json]]]
"""Operator -> one `BackendHealth` object per backend of the operator's tenant."""


class DefinitionChange(BaseModel):
    tool: str
    parts: list[str] = Field(description="Changed parts of the definition.")
    at: float = Field(description="Unix time.")


class BackendHealth(BaseModel):
    """Current health of one backend."""

    namespace: str
    kind: Literal["module", "http", "sse", "stdio", "openapi"]
    state: Literal["unknown", "up", "failing", "down"] = Field(
        description="Not used yet; last call succeeded; last call failed; circuit breaker open."
    )
    since: float = Field(description="Unix time at which the state began.")
    eras: list[str] = Field(description="Supported protocol eras, modern and handshake; empty if unknown.")
    breaker: Literal["closed", "open", "half-open"] = Field(description="Of the address: it concerns all tenants.")
    open_tenant_breakers: int = Field(description="Tenants whose own calls kept failing and are rejected for now.")
    degraded: bool = Field(description="Its lists could not be refreshed; cached lists are served.")
    last_error: str | None = Field(description="Kind of the last failure, also after recovery.")
    last_error_at: float | None
    in_flight: int
    waiting: int
    tools: int
    resources: int
    prompts: int
    quarantined: dict[str, str] = Field(description="Items that are not served, with the reason.")
    suspicious: dict[str, str] = Field(description="Tools whose description contains instructions to the model.")
    changed: list[DefinitionChange] = Field(description="Tools with changed definitions, newest first.")


class Backends(BaseModel):
    backends: list[BackendHealth]


def backends_router(authorization: AdminAuthorization, report: Report) -> APIRouter:
    router = APIRouter(prefix=PREFIX, tags=["backends"])

    @router.get("/backends", response_model=Backends, summary="Health of the backends")
    async def backends(request: Request) -> Response:  # pyright: ignore[reportUnusedFunction]
        async def answer(operator: Caller) -> Json:
            return {"backends": await report(operator)}

        return await authorization(request, answer)

    @router.get("/openapi.json", include_in_schema=False)
    async def description(request: Request) -> Response:  # pyright: ignore[reportUnusedFunction]
        async def answer(operator: Caller) -> Json:
            app = request.app
            document = get_openapi(title="Gatehouse operator API", version=app.version, routes=app.routes)
            paths = {path: item for path, item in document["paths"].items() if path.startswith(PREFIX)}
            return {**document, "paths": paths}

        return await authorization(request, answer)

    return router
