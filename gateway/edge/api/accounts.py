"""`/api/v1/accounts`: the caller's accounts at remote servers; for administrators also those of their tenant."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final, Protocol

import msgspec
from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from gateway.contract import Caller, Json
from gateway.contract.caller import ADMIN
from gateway.edge.api.authorization import error_response
from gateway.edge.authentication import check_audience
from gateway.edge.ip_rate_limit import Gate
from gateway.edge.request_parsing import fold_headers, read_body
from gateway.errors import Fault, Kind

MAX_BODY: Final = 16 * 1024


class AccountReport(BaseModel):
    backend: str = Field(description="Namespace of the backend.")
    host: str = Field(description="Host of the server.")
    kind: str = Field(description="`oauth`, or `key` for a personal key.")
    state: str = Field(description="`connected`, `reconnect` or `missing`.")
    principal: str
    scopes: list[str] = Field(description="Scopes that the server granted.")
    connected_at: float | None = Field(description="Unix time.")
    used_at: float | None = Field(description="Unix time of the last call.")


class ConnectLink(BaseModel):
    url: str = Field(description="Page to open in a browser, signed in as the caller.")


class PersonalKey(BaseModel):
    key: str = Field(description="The personal key.")


class AccountService(Protocol):
    """Connects and disconnects accounts (`gateway.accounts.connect.Connections`)."""

    async def list(self, tenant: str | None, principal: str | None = None) -> Sequence[Any]: ...

    async def put_key(self, person: Caller, name: str, key: str) -> None: ...

    async def disconnect(self, tenant: str, principal: str, name: str) -> bool: ...


Authenticate = Callable[[Mapping[str, str], str], Awaitable[Caller]]


def accounts_router(
    authenticate: Authenticate,
    gate: Gate,
    service: AccountService,
    backends: Callable[[Caller], Sequence[tuple[str, str, str]]],
    link: Callable[[Caller, str], str],
) -> APIRouter:
    """Build the routes. `backends` returns name, host and kind of those the caller may use; `link` makes a link."""
    router = APIRouter(prefix="/api/v1/accounts", tags=["accounts"])

    async def answer(request: Request, work: Callable[[Caller], Awaitable[object]]) -> Response:
        try:
            await gate(request)
            headers = fold_headers(request.scope["headers"])
            caller = await authenticate(headers, request.client.host if request.client else "")
            check_audience(caller)
            body = msgspec.json.encode(await work(caller))
        except Fault as fault:
            return error_response(fault)
        return Response(body, media_type="application/json", headers={"cache-control": "no-store"})

    def require(caller: Caller, name: str) -> None:
        if name not in [each[0] for each in backends(caller)]:
            raise Fault(Kind.NOT_FOUND, f"There is no backend {name} with accounts.")

    @router.get("", response_model=list[AccountReport], summary="The caller's accounts, or all of the tenant")
    async def accounts(request: Request, all: bool = False) -> Response:  # pyright: ignore[reportUnusedFunction]
        async def work(caller: Caller) -> object:
            hosts = {name: (host, kind) for name, host, kind in backends(caller)}
            if all:
                _require_admin(caller)
                return [
                    {**asdict(each), "host": hosts.get(each.backend, ("", ""))[0]}
                    for each in await service.list(caller.tenant)
                ]
            mine = {each.backend: asdict(each) for each in await service.list(caller.tenant, caller.principal)}
            return [
                {"host": host, **mine.get(name, _missing(caller, name, kind))} for name, (host, kind) in hosts.items()
            ]

        return await answer(request, work)

    @router.post("/{backend}/link", response_model=ConnectLink, summary="A link to connect an account")
    async def connect(request: Request, backend: str) -> Response:  # pyright: ignore[reportUnusedFunction]
        async def work(caller: Caller) -> object:
            require(caller, backend)
            url = link(caller, backend)
            if not url:
                raise Fault(Kind.DENIED, "A service has no browser to sign in with: it cannot connect an account.")
            return {"url": url}

        return await answer(request, work)

    @router.put("/{backend}/key", summary="Store a personal key")
    async def put_key(request: Request, backend: str) -> Response:  # pyright: ignore[reportUnusedFunction]
        async def work(caller: Caller) -> object:
            require(caller, backend)
            try:
                raw = await read_body(request.headers, request.receive, MAX_BODY)
                body: Any = msgspec.json.decode(raw)
                key = body["key"]
            except (msgspec.DecodeError, KeyError, TypeError) as exc:
                raise Fault(Kind.INVALID_INPUT, 'Send the key as {"key": "…"}.') from exc
            await service.put_key(caller, backend, str(key))
            return {"state": "connected"}

        return await answer(request, work)

    @router.delete("/{backend}", summary="Disconnect an account and revoke its tokens")
    async def disconnect(  # pyright: ignore[reportUnusedFunction]
        request: Request, backend: str, principal: str | None = None
    ) -> Response:
        async def work(caller: Caller) -> object:
            owner = principal or caller.principal
            if owner != caller.principal:
                _require_admin(caller)
                if owner.partition("/")[0] != caller.tenant:
                    raise Fault(Kind.NOT_FOUND, "There is no such account.")
            if not await service.disconnect(caller.tenant, owner, backend):
                raise Fault(Kind.NOT_FOUND, "There is no such account.")
            return {"state": "missing"}

        return await answer(request, work)

    return router


def _missing(caller: Caller, name: str, kind: str) -> Json:
    return {
        "tenant": caller.tenant,
        "principal": caller.principal,
        "backend": name,
        "kind": kind,
        "state": "missing",
        "issuer": "",
        "scopes": (),
        "connected_at": None,
        "used_at": None,
    }


def _require_admin(caller: Caller) -> None:
    if ADMIN not in caller.scopes:
        raise Fault(Kind.DENIED, f"The accounts of others require the scope {ADMIN}.")
