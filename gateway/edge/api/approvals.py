"""`/api/v1/approvals`: calls that wait for approval, decisions on them, grants and undelivered notifications.

Decisions need the scope `mcp:approve` on an API key of a person. An access token that was issued to a client is not
accepted, because a model may use it.
"""

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any, Final, Literal

import msgspec
from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from gateway.approvals.review import ApprovalReview, grant_to_json
from gateway.contract import Caller, Json
from gateway.contract.caller import ADMIN, APPROVE
from gateway.edge.api.authorization import AdminAuthorization
from gateway.edge.request_parsing import read_body
from gateway.errors import Fault, Kind
from gateway.state.approval_deliveries import DeadLetter

_MAX_BODY: Final = 16 * 1024

DeadLetters = Callable[[str], Awaitable[list[DeadLetter]]]
RetryDelivery = Callable[[str, str], Awaitable[bool]]
IsApprover = Callable[[Caller], bool]


class ApproverCount(BaseModel):
    group: str
    count: int = Field(description="Members of the group that must approve.")


class ApprovalSummary(BaseModel):
    """A call that waits for approval, or waited."""

    id: str
    status: Literal["waiting", "approved", "denied", "used", "expired", "void"]
    caller: str = Field(description="Principal that made the call.")
    tool: str = Field(description="Canonical id of the tool.")
    effect: int
    reason: str = Field(description="Why policy asks.")
    policies: list[str]
    approvers: list[ApproverCount]
    created_at: float = Field(description="Unix time.")
    expires_at: float
    decided_at: float | None
    used_at: float | None = Field(description="When the call ran.")
    correlation_id: str


class ApprovalDetail(ApprovalSummary):
    """One call with its arguments."""

    arguments: str = Field(description="The arguments as text, redacted as the tenant says.")
    arguments_complete: bool = Field(description="Whether nothing is hidden from you.")
    can_approve: bool
    obstacle: str = Field(description="Why you cannot approve it; empty if you can.")
    decisions: list[dict[str, Any]] = Field(description="Approver, decision, reason and time of each.")


class ApprovalList(BaseModel):
    approvals: list[ApprovalSummary] = Field(description="Newest first.")


class ApprovalGrants(BaseModel):
    grants: list[dict[str, Any]] = Field(description="Id, caller, tool, for, approver, created_at, ends_at.")


class UndeliveredNotifications(BaseModel):
    undelivered: list[dict[str, Any]] = Field(
        description="Id, tenant, approval_id, channel, attempts, last_error, created_at."
    )


class ApprovalDecision(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a decision."""

    decision: Literal["approve", "deny"]
    reason: str = ""
    duration: Literal["once", "hour", "session"] = "once"


def approvals_router(
    authorization: AdminAuthorization,
    review: ApprovalReview,
    is_approver: IsApprover,
    dead_letters: DeadLetters,
    retry_delivery: RetryDelivery,
) -> APIRouter:
    router = APIRouter(prefix="/api/v1", tags=["approvals"])

    @router.get("/approvals", response_model=ApprovalList, summary="Calls that wait for approval, or waited")
    async def approvals(request: Request, status: str = "waiting") -> Response:  # pyright: ignore[reportUnusedFunction]
        async def answer(viewer: Caller) -> Json:
            found = await review.list(viewer, state="" if status == "all" else status)
            return {"approvals": [each.to_json() for each in found]}

        return await authorization(request, answer)

    @router.get("/approvals/grants", response_model=ApprovalGrants, summary="Active grants")
    async def grants(request: Request) -> Response:  # pyright: ignore[reportUnusedFunction]
        async def answer(viewer: Caller) -> Json:
            found = await review.grants(viewer, is_approver=is_approver(viewer))
            return {"grants": [grant_to_json(each) for each in found]}

        return await authorization(request, answer)

    @router.delete("/approvals/grants/{id}", summary="Revoke a grant")
    async def revoke(request: Request, id: str) -> Response:  # pyright: ignore[reportUnusedFunction]
        async def answer(viewer: Caller) -> Json:
            await review.revoke(viewer, id, is_approver=is_approver(viewer))
            return {"revoked": id}

        return await authorization(request, answer)

    @router.get(
        "/approvals/undelivered",
        response_model=UndeliveredNotifications,
        summary="Notifications that could not be delivered (scope mcp:admin)",
    )
    async def undelivered(request: Request) -> Response:  # pyright: ignore[reportUnusedFunction]
        async def answer(operator: Caller) -> Json:
            _require(operator, ADMIN)
            return {"undelivered": [asdict(each) for each in await dead_letters(operator.tenant)]}

        return await authorization(request, answer)

    @router.post("/approvals/undelivered/{id}", summary="Send a notification again")
    async def retry(request: Request, id: str) -> Response:  # pyright: ignore[reportUnusedFunction]
        async def answer(operator: Caller) -> Json:
            _require(operator, ADMIN)
            if not await retry_delivery(operator.tenant, id[:64]):
                raise Fault(Kind.NOT_FOUND, "There is no undelivered notification with this id.")
            return {"retried": id}

        return await authorization(request, answer)

    @router.get(
        "/approvals/{id}",
        response_model=ApprovalDetail,
        summary="One call that waits for approval, with its arguments",
    )
    async def approval(request: Request, id: str) -> Response:  # pyright: ignore[reportUnusedFunction]
        async def answer(viewer: Caller) -> Json:
            return (await review.show(viewer, id)).to_json()

        return await authorization(request, answer)

    @router.post("/approvals/{id}", response_model=ApprovalDetail, summary="Approve or deny a call")
    async def decide(request: Request, id: str) -> Response:  # pyright: ignore[reportUnusedFunction]
        async def answer(approver: Caller) -> Json:
            _require(approver, APPROVE)
            if approver.token:
                raise Fault(Kind.DENIED, "Decide in the console, or with an API key that has the scope mcp:approve.")
            made = _decode(await read_body(request.headers, request.receive, _MAX_BODY))
            if made.decision == "deny":
                return (await review.deny(approver, id, made.reason)).to_json()
            return (await review.approve(approver, id, made.reason, made.duration)).to_json()

        return await authorization(request, answer)

    return router


def _require(caller: Caller, scope: str) -> None:
    if scope not in caller.scopes:
        message = (
            f"This credential lacks the scope {scope}. Create a key with it: gatehouse key create --scope {scope}."
        )
        raise Fault(Kind.DENIED, message, details={"missing_scopes": [scope]})


def _decode(body: bytes) -> ApprovalDecision:
    try:
        decoded: Any = msgspec.json.decode(body, type=ApprovalDecision)
    except (msgspec.DecodeError, RecursionError) as exc:
        raise Fault(Kind.INVALID_INPUT, f"Invalid request body: {str(exc)[:200]}") from exc
    return decoded
