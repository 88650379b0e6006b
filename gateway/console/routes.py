"""HTTP routes of the console. Each page requires a signed-in operator with the admin scope.

All pages are read-only but those of approvals, which approvers may see as well. Their forms carry a token of the
session.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from fastapi import APIRouter, Request, Response

from gateway.console import approvals, backends, call, calls, connect, overview, policy_check, tools
from gateway.console.html import h
from gateway.console.layout import CONTENT_TYPES, FILES, HEADERS, render_page, render_standalone
from gateway.console.page import ConsolePage, ConsoleSources, PageRequest
from gateway.console.session import ENTRY_SCOPES, SCOPE, ConsoleSignIn, missing_scope
from gateway.contract import Caller
from gateway.errors import TABLE, Fault, Kind

_OPS_SCOPE_KEY: Final = "gatehouse.ops"
"""ASGI scope key that the edge sets on requests to the ops port."""
_LIVE_HEADER: Final = "x-live"
_MAX_QUERY: Final = 16 * 1024
_MAX_FORM: Final = 16 * 1024

PageBuilder = Callable[[PageRequest], Awaitable[ConsolePage]]
DetailPageBuilder = Callable[[PageRequest, str], Awaitable[ConsolePage]]
FormHandler = Callable[[PageRequest, str, Mapping[str, str]], Awaitable[str]]
"""Applies a submitted form; returns the page to go to."""

PAGES: Final[Mapping[str, PageBuilder]] = {
    "": overview.overview,
    "/calls": calls.calls,
    "/backends": backends.backends,
    "/tools": tools.tools,
    "/why": policy_check.policy_check,
    "/connect": connect.connect,
}
DETAIL_PAGES: Final[Mapping[str, DetailPageBuilder]] = {
    "/calls/{id:path}": call.call,
    "/backends/{id:path}": backends.backend,
    "/tools/{id:path}": tools.tool,
}
APPROVER_PAGES: Final[Mapping[str, PageBuilder]] = {"/approvals": approvals.approvals}
APPROVER_DETAIL_PAGES: Final[Mapping[str, DetailPageBuilder]] = {"/approvals/{id}": approvals.approval}
FORMS: Final[Mapping[str, FormHandler]] = {
    "/approvals/{id}": approvals.decide,
    "/approvals/grants/{id}": approvals.revoke,
}


class ConsoleRoutes:
    """With `ops_port_only` the console answers on the ops port alone."""

    def __init__(
        self,
        sources: ConsoleSources,
        session: ConsoleSignIn,
        url: str,
        host_allowed: Callable[[str], bool],
        *,
        ops_port_only: bool,
    ) -> None:
        self._sources = sources
        self._session = session
        self._host_allowed = host_allowed
        self._ops_port_only = ops_port_only
        self.url = f"{url}/console"
        self.prefix = urlsplit(self.url).path

    def router(self) -> APIRouter:
        router = APIRouter(prefix="/console", include_in_schema=False)
        router.add_api_route("/static/{name}", self._file, methods=["GET"])
        router.add_api_route("/sign-in", self._sign_in, methods=["GET"])
        router.add_api_route("/signed-in", self._signed_in, methods=["GET"])
        router.add_api_route("/sign-out", self._sign_out, methods=["POST"])
        for path, build in PAGES.items():
            router.add_api_route(path, self._page(build), methods=["GET"])
        for path, build_detail in DETAIL_PAGES.items():
            router.add_api_route(path, self._detail_page(build_detail), methods=["GET"])
        for path, build in APPROVER_PAGES.items():
            router.add_api_route(path, self._page(build, ENTRY_SCOPES), methods=["GET"])
        for path, build_detail in APPROVER_DETAIL_PAGES.items():
            router.add_api_route(path, self._detail_page(build_detail, ENTRY_SCOPES), methods=["GET"])
        for path, handle in FORMS.items():
            router.add_api_route(path, self._form(handle), methods=["POST"])
        return router

    # ---- route handlers ----

    def _page(self, build: PageBuilder, scopes: Sequence[str] = (SCOPE,)) -> Callable[[Request], Awaitable[Response]]:
        async def page(request: Request) -> Response:
            return await self._respond(request, build, scopes)

        return page

    def _detail_page(
        self, build: DetailPageBuilder, scopes: Sequence[str] = (SCOPE,)
    ) -> Callable[[Request, str], Awaitable[Response]]:
        async def page(request: Request, id: str) -> Response:
            return await self._respond(request, lambda page_request: build(page_request, id), scopes)

        return page

    def _form(self, handle: FormHandler) -> Callable[[Request, str], Awaitable[Response]]:
        async def submit(request: Request, id: str) -> Response:
            if not self._is_available(request):
                return Response(status_code=404)
            try:
                operator = await self._session.authenticate(request.cookies)
                if operator is None or operator.scopes.isdisjoint(ENTRY_SCOPES):
                    raise missing_scope()
                form = await _read_form(request)
                self._session.check_form_token(operator, form.get("form_token", ""))
                return _redirect(await handle(self._page_request(request, operator), id, form), [])
            except Fault as fault:
                return self._error_page(fault)

        return submit

    async def _file(self, request: Request, name: str) -> Response:
        body = FILES.get(name)
        if body is None or not self._is_available(request):
            return Response(status_code=404)
        kind = CONTENT_TYPES[f".{name.rpartition('.')[2]}"]
        headers = {"cache-control": "public, max-age=31536000, immutable", "x-content-type-options": "nosniff"}
        return Response(body, headers={**headers, "content-type": kind})

    async def _sign_in(self, request: Request) -> Response:
        """Start a new sign-in after a sign-out. The user may sign in under another name."""
        return await self._advance(request, lambda: self._session.begin(self.prefix, force_login=True))

    async def _signed_in(self, request: Request) -> Response:
        return await self._advance(request, lambda: self._session.finish(request.query_params, request.cookies))

    async def _sign_out(self, request: Request) -> Response:
        if not self._is_available(request):
            return Response(status_code=404)
        caller = await self._session.authenticate(request.cookies)
        cookies = await self._session.sign_out(caller, request.cookies)
        text = render_standalone(
            self.prefix,
            "Signed out",
            h.h1("Signed out"),
            h.p(h.a("Sign in again", href=f"{self.prefix}/sign-in", class_="primary")),
        )
        return _html_response(text, 200, cookies)

    # ---- shared by the handlers ----

    async def _advance(self, request: Request, step: Callable[[], Awaitable[tuple[str, list[str]]]]) -> Response:
        """Run one step of the sign-in, and redirect to its result."""
        if not self._is_available(request):
            return Response(status_code=404)
        try:
            return _redirect(*await step())
        except Fault as fault:
            return self._error_page(fault)

    async def _respond(self, request: Request, build: PageBuilder, scopes: Sequence[str]) -> Response:
        if not self._is_available(request) or len(request.scope["query_string"]) > _MAX_QUERY:
            return Response(status_code=404)
        try:
            operator = await self._session.authenticate(request.cookies)
            if operator is None:
                if _LIVE_HEADER in request.headers:
                    return Response(status_code=401, headers=HEADERS)
                return_to = self.prefix + request.scope["path"].removeprefix("/console")
                query: str = request.scope["query_string"].decode("ascii", "replace")
                return _redirect(*await self._session.begin(f"{return_to}?{query}" if query else return_to))
            if operator.scopes.isdisjoint(scopes):
                if not operator.scopes.isdisjoint(ENTRY_SCOPES) and request.scope["path"] == "/console":
                    return _redirect(f"{self.prefix}/approvals", [])
                raise missing_scope()
            page_request = self._page_request(request, operator)
            return _html_response(render_page(page_request, await build(page_request)))
        except Fault as fault:
            return self._error_page(fault)

    def _page_request(self, request: Request, operator: Caller) -> PageRequest:
        """Raises `Fault(NOT_FOUND)` alike for an unknown tenant and for one that the operator may not see."""
        query = dict(request.query_params)
        visible = self._sources.visible_tenant(operator) if self._session.authority is not None else None
        name = query.get("tenant") or None
        known = name in (None, visible) if visible is not None else name is None or name in self._sources.tenants()
        if not known:
            raise Fault(Kind.NOT_FOUND, "Tenant not found. Check the name in the address.")
        return PageRequest(
            sources=self._sources,
            operator=operator,
            tenant=visible if visible is not None else name,
            all_tenants=visible is None,
            prefix=self.prefix,
            signed_in=self._session.authority is not None,
            query=query,
            form_token=self._session.form_token(operator),
        )

    def _is_available(self, request: Request) -> bool:
        """Whether the console answers this request: on the ops port where there is one; without sign-in, only for an
        allowed Host header, against DNS rebinding."""
        if self._ops_port_only and not request.scope.get(_OPS_SCOPE_KEY):
            return False
        return self._session.authority is not None or self._host_allowed(request.headers.get("host", ""))

    def _error_page(self, fault: Fault) -> Response:
        title = {Kind.NOT_FOUND: "Not found", Kind.DENIED: "Access denied"}.get(fault.kind, "Request failed")
        action = (
            h.form(
                h.button("Sign in as another user", class_="primary"), method="post", action=f"{self.prefix}/sign-out"
            )
            if fault.kind is Kind.DENIED
            else h.p(h.a("Go to the overview", href=self.prefix))
        )
        text = render_standalone(self.prefix, title, h.h1(title), h.p(fault.message), action)
        return _html_response(text, TABLE[fault.kind].http)


async def _read_form(request: Request) -> dict[str, str]:
    """Read a submitted form. Raises `Fault` for one that is too large or of another type."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/x-www-form-urlencoded":
        raise Fault(Kind.INVALID_INPUT, "The form was sent in an unexpected format.")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MAX_FORM:
            raise Fault(Kind.TOO_LARGE, "The form is too large.")
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=20))
    except ValueError as exc:
        raise Fault(Kind.INVALID_INPUT, "The form cannot be read.") from exc


def _html_response(text: str, status: int = 200, cookies: list[str] | None = None) -> Response:
    response = Response(text, status, headers={**HEADERS, "content-type": "text/html; charset=utf-8"})
    for cookie in cookies or ():
        response.headers.append("set-cookie", cookie)
    return response


def _redirect(location: str, cookies: list[str]) -> Response:
    response = Response(status_code=303, headers={"location": location, "cache-control": "no-store"})
    for cookie in cookies:
        response.headers.append("set-cookie", cookie)
    return response
