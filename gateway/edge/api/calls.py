"""`/api/v1/calls` and `/api/v1/traffic`: the calls that the operator may look at, as they end and while they run."""

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

_MOST: Final = 500
_SLOTS: Final = 60
_SHOWN: Final = [field.name for field in fields(FinishedCall)]

Reach = Callable[[Caller], str | None]
"""The tenant that an operator may look at; None for all of them."""
Find = Callable[[CallFilter], Awaitable[list[VisibleCall]]]
Measure = Callable[[str | None, float, int], Awaitable[Traffic]]
UnderWay = Callable[[str | None], list[Json]]


class RunningCall(BaseModel):
    correlation_id: str
    tenant: str
    principal: str
    target: str
    seconds: float = Field(description="Since it came.")


class CallList(BaseModel):
    calls: list[FinishedCall] = Field(description="The newest first.")
    running: list[RunningCall] = Field(description="Those at a backend now, of the worker that answers.")


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

    def wanted(self, reach: str | None) -> CallFilter:
        """Bounded by what the operator may look at; another tenant has no calls."""
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
            limit=max(1, min(self.limit, _MOST)),
        )


def calls_router(
    door: AdminAuthorization, reach: Reach, find: Find, measure: Measure, under_way: UnderWay
) -> APIRouter:
    router = APIRouter(prefix="/api/v1", tags=["calls"])

    @router.get("/calls", response_model=CallList, summary="The last calls, and those under way")
    async def calls(request: Request) -> Response:  # pyright: ignore[reportUnusedFunction]
        async def answer(operator: Caller) -> Json:
            wanted = _read(request).wanted(reach(operator))
            found = await find(wanted)
            shown = [{name: getattr(each, name) for name in _SHOWN} for each in found]
            return {"calls": shown, "running": under_way(wanted.tenant)}

        return await door(request, answer)

    @router.get("/traffic", summary="How much was called, how it ended and how long it took")
    async def traffic(request: Request, minutes: int = 60) -> Response:  # pyright: ignore[reportUnusedFunction]
        async def answer(operator: Caller) -> Json:
            seconds = max(1, min(minutes, 24 * 60)) * 60
            seen = await measure(reach(operator), seconds, _SLOTS)
            percentiles = {f"p{share}_us": round(seen.percentile(share / 100)) for share in (50, 95, 99)}
            return {**msgspec.to_builtins(seen), "calls": seen.calls, **percentiles}

        return await door(request, answer)

    return router


def _read(request: Request) -> CallQuery:
    given: dict[str, Any] = dict(request.query_params)
    try:
        return msgspec.convert(given, CallQuery, strict=False)
    except msgspec.ValidationError as exc:
        raise Fault(Kind.INVALID_INPUT, f"The query is not what this route takes: {str(exc)[:200]}") from exc
