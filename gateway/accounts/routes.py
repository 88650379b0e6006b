"""HTTP routes of the account pages, for every signed-in user, and the gateway's client metadata document."""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import wraps
from typing import Final, Protocol
from urllib.parse import parse_qsl, urlencode, urlsplit

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from gateway.accounts import pages
from gateway.accounts.access import AccountBackends, BackendAccounts, ConnectTicket, Seal, open_ticket
from gateway.accounts.authorization import client_metadata
from gateway.accounts.connect import Connections, host_of
from gateway.accounts.pages import AccountEntry
from gateway.contract import Caller
from gateway.contract.caller import ADMIN
from gateway.errors import TABLE, Fault, Kind

FORM_SECONDS: Final = 3600.0
MAX_BODY: Final = 64 * 1024
_FORM: Final = "account form"

Handler = Callable[[Request], Awaitable[Response]]


class BrowserSignIn(Protocol):
    """Sign-in of users at the gateway's authorization server."""

    async def authenticate(self, cookies: Mapping[str, str]) -> Caller | None: ...

    async def begin(self, return_to: str, *, force_login: bool = False) -> tuple[str, list[str]]: ...

    async def finish(self, query: Mapping[str, str], cookies: Mapping[str, str]) -> tuple[str, list[str]]: ...

    async def sign_out(self, caller: Caller | None, cookies: Mapping[str, str]) -> list[str]: ...


class AccountRoutes:
    """The pages below `/accounts`. Every form carries a token that is bound to the person."""

    def __init__(
        self,
        connections: Connections,
        backends: AccountBackends,
        sign_in: BrowserSignIn,
        seal: Seal,
        *,
        public_url: str,
        may_use: Callable[[Caller, str], bool],
        gate: Callable[[Request], Awaitable[None]],
    ) -> None:
        self._connections = connections
        self._backends = backends
        self._sign_in = sign_in
        self._seal = seal
        self._public_url = public_url
        self._prefix = urlsplit(public_url).path
        self._may_use = may_use
        self._gate = gate

    def router(self) -> APIRouter:
        router = APIRouter(prefix="/accounts", include_in_schema=False)
        routes: tuple[tuple[str, str, Handler], ...] = (
            ("GET", "", self._list),
            ("GET", "/signed-in", self._signed_in),
            ("POST", "/sign-out", self._sign_out),
            ("GET", "/connect/{backend}", self._show_connect),
            ("POST", "/connect/{backend}", self._connect),
            ("GET", "/callback/{backend}", self._callback),
            ("POST", "/disconnect/{backend}", self._disconnect),
        )
        for method, path, handler in routes:
            router.add_api_route(path, self._guarded(handler), methods=[method])
        router.add_api_route("/client.json", self._client_document, methods=["GET"])
        return router

    # ---- pages ----

    async def _list(self, request: Request) -> Response:
        person = await self._person(request)
        if person is None:
            return await self._to_sign_in(request)
        mine = {each.backend: each for each in await self._connections.list(person.tenant, person.principal)}
        entries = [
            AccountEntry(each.name, each.host, each.kind, mine.get(each.name))
            for each in self._backends.all()
            if self._may_use(person, each.name)
        ]
        others = []
        if ADMIN in person.scopes:
            all_of_tenant = await self._connections.list(person.tenant)
            others = [each for each in all_of_tenant if each.principal != person.principal]
        name = request.query_params.get("connected", "")
        notice = f"{name} is connected. You can close this page." if name in mine else ""
        return self._html(pages.accounts_page(_shown(person), entries, self._csrf(person), others, notice))

    async def _signed_in(self, request: Request) -> Response:
        return self._redirect(*await self._sign_in.finish(request.query_params, request.cookies))

    async def _sign_out(self, request: Request) -> Response:
        person, _ = await self._submitted(request)
        cookies = await self._sign_in.sign_out(person, request.cookies)
        text = pages.message_page("Signed out", "You are signed out of this gateway.", is_error=False)
        return self._html(text, cookies=cookies)

    async def _show_connect(self, request: Request) -> Response:
        person, name = await self._person(request), request.path_params["backend"]
        if person is None:
            return await self._to_sign_in(request)
        backend, _ = self._usable(person, name), self._ticket(request, person, name)
        if backend.authorization is None:
            return self._html(pages.key_page(_shown(person), name, backend.host, backend.help, self._csrf(person)))
        found = await backend.authorization.discover()
        facts = [
            ("Signed in here as", _shown(person)),
            ("Server", backend.host),
            ("Its sign-in", host_of(found.metadata.authorization_endpoint)),
        ]
        scopes = backend.authorization.scopes_for(found, self._asked(request, person, name))
        if scopes:
            facts.append(("Permissions", " ".join(scopes)))
        return self._html(pages.connect_page(_shown(person), name, facts, "", self._csrf(person)))

    async def _connect(self, request: Request) -> Response:
        person, form = await self._submitted(request)
        name = request.path_params["backend"]
        backend = self._usable(person, name)
        if backend.authorization is None:
            try:
                await self._connections.put_key(person, name, form.get("key", ""))
            except Fault as fault:
                page = pages.key_page(
                    _shown(person), name, backend.host, backend.help, self._csrf(person), fault.message
                )
                return self._html(page, 400)
            return self._redirect(f"{self._prefix}/accounts?{urlencode({'connected': name})}", [])
        url, cookie = await self._connections.begin(person, name, self._asked(request, person, name))
        return self._html(pages.leaving_page(url, host_of(url)), cookies=[cookie])

    async def _callback(self, request: Request) -> Response:
        person, name = await self._person(request), request.path_params["backend"]
        if person is None:
            raise Fault(Kind.INVALID_INPUT, "You are no longer signed in here. Sign in and start again.")
        self._usable(person, name)
        _, cookie = await self._connections.finish(person, name, request.query_params, request.cookies)
        return self._redirect(f"{self._prefix}/accounts?{urlencode({'connected': name})}", [cookie])

    async def _disconnect(self, request: Request) -> Response:
        person, form = await self._submitted(request)
        principal = form.get("principal") or person.principal
        if principal != person.principal and not may_administer(person, principal):
            raise Fault(Kind.DENIED, "Only an administrator of this tenant may disconnect the accounts of others.")
        await self._connections.disconnect(person.tenant, principal, request.path_params["backend"])
        return self._redirect(f"{self._prefix}/accounts", [])

    async def _client_document(self) -> JSONResponse:
        """The Client ID Metadata Document of the gateway: authorization servers fetch it."""
        redirects = [each.authorization.redirect_uri for each in self._backends.all() if each.authorization is not None]
        document = {
            "client_id": f"{self._public_url}/accounts/client.json",
            **client_metadata(self._public_url, redirects),
            "token_endpoint_auth_method": "none",
        }
        return JSONResponse(document, headers={"cache-control": "public, max-age=300"})

    # ---- shared by the handlers ----

    def _guarded(self, handler: Handler) -> Handler:
        """Render faults as pages."""

        @wraps(handler)
        async def respond(request: Request) -> Response:
            try:
                await self._gate(request)
                return await handler(request)
            except Fault as fault:
                return self._html(pages.message_page("This did not work", fault.message), TABLE[fault.kind].http)

        # The annotation of a bound method would make FastAPI look for more parameters.
        del respond.__wrapped__
        return respond

    async def _person(self, request: Request) -> Caller | None:
        person = await self._sign_in.authenticate(request.cookies)
        return person if person is not None and person.kind == "user" else None

    async def _to_sign_in(self, request: Request) -> Response:
        query = request.scope["query_string"].decode("ascii", "replace")
        target = f"{self._prefix}{request.scope['path']}"
        return self._redirect(*await self._sign_in.begin(f"{target}?{query}" if query else target))

    async def _submitted(self, request: Request) -> tuple[Caller, dict[str, str]]:
        """The person and the form of a POST. Raises `Fault(DENIED)` unless the person's own page sent it."""
        person = await self._person(request)
        form = dict(parse_qsl((await _read_body(request)).decode("utf-8", "replace"), keep_blank_values=True))
        payload = self._seal.open(_FORM, form.get("csrf", ""))
        principal, _, expires = (payload or b"").decode().rpartition(" ")
        if person is None or payload is None or principal != person.principal or float(expires) < time.time():
            raise Fault(Kind.DENIED, "This page has expired. Open your accounts again.")
        return person, form

    def _csrf(self, person: Caller) -> str:
        return self._seal.seal(_FORM, f"{person.principal} {time.time() + FORM_SECONDS}".encode())

    def _usable(self, person: Caller, name: str) -> BackendAccounts:
        if not self._may_use(person, name):
            raise Fault(Kind.NOT_FOUND, "There is no such server with accounts.")
        return self._connections.backend(name)

    def _ticket(self, request: Request, person: Caller, name: str) -> ConnectTicket | None:
        """The ticket of a connect link, if there is one. Raises `Fault(DENIED)` for a link made for another person."""
        text = request.query_params.get("ticket")
        if text is None:
            return None
        ticket = open_ticket(self._seal, text, name)
        if ticket is None:
            raise Fault(Kind.INVALID_INPUT, "This link has expired. Make the call again to get a new one.")
        if ticket.principal != person.principal:
            raise Fault(
                Kind.DENIED,
                f"This link was made for another person. You are signed in as {_shown(person)}. If someone sent it to"
                " you, do not use it: open your own accounts instead.",
            )
        return ticket

    def _asked(self, request: Request, person: Caller, name: str) -> Sequence[str]:
        ticket = self._ticket(request, person, name)
        return ticket.scopes if ticket is not None else ()

    def _html(self, text: str, status: int = 200, cookies: Sequence[str] = ()) -> Response:
        body = text.replace('"/accounts', f'"{self._prefix}/accounts') if self._prefix else text
        response = Response(body, status, media_type="text/html; charset=utf-8", headers=pages.HEADERS)
        for cookie in cookies:
            response.headers.append("set-cookie", cookie)
        return response

    def _redirect(self, url: str, cookies: Sequence[str]) -> Response:
        response = Response(status_code=303, headers={"location": url, "cache-control": "no-store"})
        for cookie in cookies:
            response.headers.append("set-cookie", cookie)
        return response


def may_administer(person: Caller, principal: str) -> bool:
    """Whether this person may disconnect the accounts of that principal: an administrator of the same tenant."""
    return ADMIN in person.scopes and principal.partition("/")[0] == person.tenant


def _shown(person: Caller) -> str:
    return person.subject if person.tenant == "default" else f"{person.subject} ({person.tenant})"


async def _read_body(request: Request) -> bytes:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY:
            raise Fault(Kind.TOO_LARGE, "The form is too large.")
    return body
