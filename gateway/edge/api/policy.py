"""`/api/v1/policy/why` and `/api/v1/policy/tools`: what a member of the operator's tenant may do and see, and why."""

from collections.abc import Callable
from typing import Any, Final, Literal

import msgspec
from fastapi import APIRouter, Request, Response

from gateway.contract import Caller, Json
from gateway.contract.caller import EVERYDAY
from gateway.edge.api.authorization import AdminAuthorization
from gateway.edge.request_limits import read_body
from gateway.errors import Fault, Kind

_MAX_BODY: Final = 1024 * 1024

Why = Callable[[Caller, str, Json, bool, bool], Json]
"""Who, which tool, with which arguments, approved or not, as told to the tenant's own or not -> the explanation."""
Reach = Callable[[Caller], str | None]
"""The tenant that an operator may look at; None for all of them."""
Seen = Callable[[Caller], list[Json]]
"""The tools as they are listed to that caller."""


class PolicySubject(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    subject: str
    kind: Literal["user", "service"] = "user"
    groups: list[str] = []
    scopes: tuple[str, ...] = EVERYDAY
    tenant: str | None = None
    """The operator's own unless named; any other answers like one that does not exist."""

    def caller(self, operator: Caller) -> Caller:
        if self.tenant not in (None, operator.tenant):
            raise Fault(Kind.NOT_FOUND, f"There is no tenant {self.tenant[:64] if self.tenant else ''}.")
        return Caller(operator.tenant, self.subject, self.kind, frozenset(self.groups), frozenset(self.scopes))


class PolicyQuestion(PolicySubject, frozen=True, forbid_unknown_fields=True, kw_only=True):
    tool: str
    arguments: dict[str, Any] = {}
    approved: bool = False


def policy_router(door: AdminAuthorization, why: Why, seen: Seen, reach: Reach) -> APIRouter:
    router = APIRouter(prefix="/api/v1", tags=["policy"])

    @router.post("/policy/why")
    async def explain(request: Request) -> Response:  # pyright: ignore[reportUnusedFunction]
        async def answer(operator: Caller) -> Json:
            asked = _decoded(await read_body(request.scope, request.receive, _MAX_BODY), PolicyQuestion)
            own = reach(operator) is not None
            return why(asked.caller(operator), asked.tool, asked.arguments, asked.approved, own)

        return await door(request, answer)

    @router.post("/policy/tools")
    async def tools(request: Request) -> Response:  # pyright: ignore[reportUnusedFunction]
        async def answer(operator: Caller) -> Json:
            asked = _decoded(await read_body(request.scope, request.receive, _MAX_BODY), PolicySubject)
            return {"tools": seen(asked.caller(operator))}

        return await door(request, answer)

    return router


def _decoded(body: bytes, kind: type[Any]) -> Any:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, RecursionError) as exc:
        raise Fault(Kind.INVALID_INPUT, f"The body is not what this route takes: {str(exc)[:200]}") from exc
