"""`/api/v1/usage`: current usage of limits, shares and streams by the operator's tenant."""

from collections.abc import Awaitable, Callable
from typing import Literal

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from gateway.contract import Caller, Json
from gateway.edge.api.authorization import AdminAuthorization

Report = Callable[[Caller], Awaitable[Json]]


class LimitUse(BaseModel):
    limit: str = Field(description="Name of the limit.")
    of: list[str] = Field(description="Dimensions of this counter beside the tenant: principal, backend, tool, effect.")
    counts: Literal["calls", "cost"]
    taken: float = Field(description="Amount used in the current window.")
    amount: float
    seconds: float


class ShareUse(BaseModel):
    backend: str
    principal: str
    running: int = Field(description="Calls running at the backend.")
    waiting: int = Field(description="Calls waiting for capacity.")


class OpenUse(BaseModel):
    principal: str
    streams: int = Field(description="Open event streams of sessions.")
    subscriptions: int = Field(description="Open subscriptions of modern clients.")


class UsageReport(BaseModel):
    """Usage of the operator's tenant, summed over all workers that answered."""

    tenant: str
    workers: int = Field(description="Number of workers included.")
    limits: list[LimitUse]
    shares: list[ShareUse]
    open: list[OpenUse]


def usage_router(authorization: AdminAuthorization, report: Report) -> APIRouter:
    router = APIRouter(prefix="/api/v1", tags=["usage"])

    @router.get("/usage", response_model=UsageReport, summary="Usage of limits, shares and streams")
    async def usage(request: Request) -> Response:  # pyright: ignore[reportUnusedFunction]
        return await authorization(request, report)

    return router
