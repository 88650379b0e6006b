"""`/api/v1/policy/why` and `/api/v1/policy/tools`: policy decisions and visible tools of a member of the tenant."""

from collections.abc import Callable
from typing import Any, Final, Literal

import msgspec
from fastapi import APIRouter, Request, Response

from gateway.contract import Caller, Json
from gateway.contract.caller import DEFAULT_SCOPES
from gateway.edge.api.authorization import AdminAuthorization
from gateway.edge.request_parsing import read_body
from gateway.errors import Fault, Kind

_MAX_BODY: Final = 1024 * 1024

Explain = Callable[[Caller, str, Json, bool, bool], Json]
"""(caller, tool, arguments, approved, own tenant only) -> explanation."""
VisibleTenant = Callable[[Caller], str | None]
"""Operator -> the tenant it may see; None for all tenants."""
VisibleTools = Callable[[Caller], list[Json]]
"""Caller -> the tools as listed to it."""


class PolicySubject(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    subject: str
    kind: Literal["user", "service"] = "user"
    groups: list[str] = []
    scopes: tuple[str, ...] = DEFAULT_SCOPES
    tenant: str | None = None
    """Default: the operator's tenant. Any other tenant is reported as unknown."""

    def caller(self, operator: Caller) -> Caller:
        if self.tenant not in (None, operator.tenant):
            raise Fault(Kind.NOT_FOUND, f"There is no tenant {self.tenant[:64] if self.tenant else ''}.")
        return Caller(operator.tenant, self.subject, self.kind, frozenset(self.groups), frozenset(self.scopes))


class PolicyQuestion(PolicySubject, frozen=True, forbid_unknown_fields=True, kw_only=True):
    tool: str
    arguments: dict[str, Any] = {}
    approved: bool = False


def policy_router(
    authorization: AdminAuthorization, explain_call: Explain, visible_tools: VisibleTools, visible_tenant: VisibleTenant
) -> APIRouter:
    router = APIRouter(prefix="/api/v1", tags=["policy"])

    @router.post("/policy/why")
    async def explain(request: Request) -> Response:  # pyright: ignore[reportUnusedFunction]
        async def answer(operator: Caller) -> Json:
            asked = _decode(await read_body(request.headers, request.receive, _MAX_BODY), PolicyQuestion)
            own = visible_tenant(operator) is not None
            return explain_call(asked.caller(operator), asked.tool, asked.arguments, asked.approved, own)

        return await authorization(request, answer)

    @router.post("/policy/tools")
    async def tools(request: Request) -> Response:  # pyright: ignore[reportUnusedFunction]
        async def answer(operator: Caller) -> Json:
            asked = _decode(await read_body(request.headers, request.receive, _MAX_BODY), PolicySubject)
            return {"tools": visible_tools(asked.caller(operator))}

        return await authorization(request, answer)

    return router


def _decode(body: bytes, kind: type[Any]) -> Any:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, RecursionError) as exc:
        raise Fault(Kind.INVALID_INPUT, f"Invalid request body: {str(exc)[:200]}") from exc
