"""`/api/v1/calls` and `/api/v1/traffic`: finished and running calls that the operator may see."""

from collections.abc import Awaitable, Callable
from dataclasses import fields
from typing import Any, Final

import msgspec
from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from gateway.contract import Caller, Json
from gateway.edge.api.authorization import AdminAuthorization
from gateway.errors import Fault, Kind
from gateway.state.call_history import CallFilter, FinishedCall, Traffic, VisibleCall

_MAX_CALLS: Final = 500
_SLOTS: Final = 60
_FIELDS: Final = [field.name for field in fields(FinishedCall)]

VisibleTenant = Callable[[Caller], str | None]
"""Operator -> the tenant it may see; None for all tenants."""
Find = Callable[[CallFilter], Awaitable[list[VisibleCall]]]
Measure = Callable[[str | None, float, int], Awaitable[Traffic]]
RunningCalls = Callable[[str | None], list[Json]]


class RunningCall(BaseModel):
    correlation_id: str
    tenant: str
    principal: str
    target: str
    seconds: float = Field(description="Seconds since the call arrived.")


class CallList(BaseModel):
    calls: list[FinishedCall] = Field(description="Finished calls, newest first.")
    running: list[RunningCall] = Field(description="Calls running in the worker that answers.")


class CallQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The query of `/calls`."""

    id: str = ""
    outcome: str = ""
    target: str = ""
    principal: str = ""
    tenant: str = ""
    slower_ms: float = 0.0
    since: float = 0.0
    before: float = 0.0
    limit: int = 50

    def to_filter(self, reach: str | None) -> CallFilter:
        """Restrict the query to the tenant that the operator may see."""
        if reach is not None and self.tenant not in ("", reach):
            raise Fault(Kind.NOT_FOUND, f"There is no tenant {self.tenant[:64]}.")
        return CallFilter(
            tenant=reach if reach is not None else self.tenant or None,
            id=self.id,
            outcome=self.outcome,
            target=self.target,
            principal=self.principal,
            slower_us=int(self.slower_ms * 1000),
            since=self.since,
            before=self.before,
            limit=max(1, min(self.limit, _MAX_CALLS)),
        )


def calls_router(
    authorization: AdminAuthorization,
    visible_tenant: VisibleTenant,
    find: Find,
    measure: Measure,
    running_calls: RunningCalls,
) -> APIRouter:
    router = APIRouter(prefix="/api/v1", tags=["calls"])

    @router.get("/calls", response_model=CallList, summary="Finished and running calls")
    async def calls(request: Request) -> Response:  # pyright: ignore[reportUnusedFunction]
        async def answer(operator: Caller) -> Json:
            wanted = _read_query(request).to_filter(visible_tenant(operator))
            found = await find(wanted)
            shown = [{name: getattr(each, name) for name in _FIELDS} for each in found]
            return {"calls": shown, "running": running_calls(wanted.tenant)}

        return await authorization(request, answer)

    @router.get("/traffic", summary="Call counts, outcomes and durations")
    async def traffic(request: Request, minutes: int = 60) -> Response:  # pyright: ignore[reportUnusedFunction]
        async def answer(operator: Caller) -> Json:
            seconds = max(1, min(minutes, 24 * 60)) * 60
            seen = await measure(visible_tenant(operator), seconds, _SLOTS)
            percentiles = {f"p{share}_us": round(seen.percentile(share / 100)) for share in (50, 95, 99)}
            return {**msgspec.to_builtins(seen), "calls": seen.calls, **percentiles}

        return await authorization(request, answer)

    return router


def _read_query(request: Request) -> CallQuery:
    parameters: dict[str, Any] = dict(request.query_params)
    try:
        return msgspec.convert(parameters, CallQuery, strict=False)
    except msgspec.ValidationError as exc:
        raise Fault(Kind.INVALID_INPUT, f"Invalid query: {str(exc)[:200]}") from exc
