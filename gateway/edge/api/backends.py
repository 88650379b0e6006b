"""`/api/v1/backends`: how the backends of the operator's tenant are, and the description of this API."""

from collections.abc import Awaitable, Callable
from typing import Final, Literal

from fastapi import APIRouter, Request, Response
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, Field

from gateway.contract import Caller, Json
from gateway.edge.api.authorization import AdminAuthorization

PREFIX: Final = "/api/v1"

Report = Callable[[Caller], Awaitable[list[Json]]]
"""A row for each backend that the operator's tenant has, as `BackendHealth` says."""


class DefinitionChange(BaseModel):
    tool: str
    parts: list[str] = Field(description="What of its definition is another than before.")
    at: float = Field(description="Unix time.")


class BackendHealth(BaseModel):
    """One backend, at this moment."""

    namespace: str
    kind: Literal["module", "http", "sse", "stdio"]
    state: Literal["unknown", "up", "failing", "down"] = Field(
        description="Not yet asked; its last answer came; its last call failed; failed so often that it is left alone."
    )
    since: float = Field(description="Unix time at which the state began.")
    eras: list[str] = Field(description="Which it speaks, of modern and handshake; empty while that is not known.")
    breaker: Literal["closed", "open", "half-open"]
    degraded: bool = Field(description="Its lists could not be read; the last good ones are served.")
    last_error: str | None = Field(description="The kind of the last failure, whether or not it has recovered since.")
    last_error_at: float | None
    in_flight: int
    waiting: int
    tools: int
    resources: int
    prompts: int
    quarantined: dict[str, str] = Field(description="What is not served, and why.")
    suspicious: dict[str, str] = Field(description="Tools with words that sound like an order to the model.")
    changed: list[DefinitionChange] = Field(description="Tools whose definition has changed, the latest first.")


class Backends(BaseModel):
    backends: list[BackendHealth]


def backends_router(door: AdminAuthorization, report: Report) -> APIRouter:
    router = APIRouter(prefix=PREFIX, tags=["backends"])

    @router.get("/backends", response_model=Backends, summary="How the backends are")
    async def backends(request: Request) -> Response:  # pyright: ignore[reportUnusedFunction]
        async def answer(operator: Caller) -> Json:
            return {"backends": await report(operator)}

        return await door(request, answer)

    @router.get("/openapi.json", include_in_schema=False)
    async def description(request: Request) -> Response:  # pyright: ignore[reportUnusedFunction]
        async def answer(operator: Caller) -> Json:
            app = request.app
            told = get_openapi(title="Gatehouse, for operators", version=app.version, routes=app.routes)
            return {**told, "paths": {path: told["paths"][path] for path in told["paths"] if path.startswith(PREFIX)}}

        return await door(request, answer)

    return router
