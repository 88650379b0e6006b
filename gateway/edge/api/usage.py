"""`/api/v1/usage`: what the operator's tenant uses at this moment."""

from collections.abc import Awaitable, Callable
from typing import Literal

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from gateway.contract import Caller, Json
from gateway.edge.api.authorization import AdminAuthorization

Report = Callable[[Caller], Awaitable[Json]]


class LimitUse(BaseModel):
    limit: str = Field(description="The name of the limit.")
    of: list[str] = Field(description="What shares this count beside the tenant: principal, backend, tool, effect.")
    counts: Literal["calls", "cost"]
    taken: float = Field(description="How much of it was used in its window until now.")
    amount: float
    seconds: float


class ShareUse(BaseModel):
    backend: str
    principal: str
    running: int = Field(description="Calls under way at the backend.")
    waiting: int = Field(description="Calls that wait for their turn.")


class OpenUse(BaseModel):
    principal: str
    streams: int = Field(description="Open event streams of sessions.")
    subscriptions: int = Field(description="Open subscriptions of clients without a session.")


class UsageReport(BaseModel):
    """The operator's tenant, over all workers that answered."""

    tenant: str
    workers: int = Field(description="How many workers these counts are of.")
    limits: list[LimitUse]
    shares: list[ShareUse]
    open: list[OpenUse]


def usage_router(door: AdminAuthorization, report: Report) -> APIRouter:
    router = APIRouter(prefix="/api/v1", tags=["usage"])

    @router.get("/usage", response_model=UsageReport, summary="What is used of limits, shares and streams")
    async def usage(request: Request) -> Response:  # pyright: ignore[reportUnusedFunction]
        return await door(request, report)

    return router
