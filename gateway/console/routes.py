"""The console's routes: who looks is asked first, then the page is made; nothing here changes anything."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final
from urllib.parse import urlsplit

from fastapi import APIRouter, Request, Response

from gateway.console import backends, call, calls, connect, overview, policy_check, tools
from gateway.console.html import h
from gateway.console.layout import FILES, HEADERS, TYPES, alone, whole
from gateway.console.queries import ConsolePage, ConsoleQueries, ConsoleSources
from gateway.console.session import SCOPE, ConsoleSignIn
from gateway.contract import Caller
from gateway.errors import TABLE, Fault, Kind

_OPS: Final = "gatehouse.ops"
"""Set by the edge on requests that came by the operators' own port."""
_LIVE: Final = "x-live"
_MAX_QUERY: Final = 16 * 1024

Make = Callable[[ConsoleQueries], Awaitable[ConsolePage]]
MakeOne = Callable[[ConsoleQueries, str], Awaitable[ConsolePage]]

PAGES: Final[Mapping[str, Make]] = {
    "": overview.overview,
    "/calls": calls.calls,
    "/backends": backends.backends,
    "/tools": tools.tools,
    "/why": policy_check.why,
    "/connect": connect.connect,
}
ONES: Final[Mapping[str, MakeOne]] = {
    "/calls/{id:path}": call.call,
    "/backends/{id:path}": backends.backend,
    "/tools/{id:path}": tools.tool,
}


class ConsoleRoutes:
    """`apart` is whether operators have a port of their own: then the console is there and nowhere else."""

    def __init__(
        self,
        sources: ConsoleSources,
        door: ConsoleSignIn,
        url: str,
        host_allowed: Callable[[bytes], bool],
        *,
        apart: bool,
    ) -> None:
        self._sources = sources
        self._door = door
        self._host_allowed = host_allowed
        self._apart = apart
        self.url = f"{url}/console"
        self.prefix = urlsplit(self.url).path

    def router(self) -> APIRouter:
        router = APIRouter(prefix="/console", include_in_schema=False)
        router.add_api_route("/static/{name}", self._file, methods=["GET"])
        router.add_api_route("/sign-in", self._sign_in, methods=["GET"])
        router.add_api_route("/signed-in", self._signed_in, methods=["GET"])
        router.add_api_route("/sign-out", self._sign_out, methods=["POST"])
        for path, make in PAGES.items():
            router.add_api_route(path, self._page(make), methods=["GET"])
        for path, make_one in ONES.items():
            router.add_api_route(path, self._one(make_one), methods=["GET"])
        return router

    # ---- the routes ----

    def _page(self, make: Make) -> Callable[[Request], Awaitable[Response]]:
        async def page(request: Request) -> Response:
            return await self._shown(request, make)

        return page

    def _one(self, make: MakeOne) -> Callable[[Request, str], Awaitable[Response]]:
        async def page(request: Request, id: str) -> Response:
            return await self._shown(request, lambda look: make(look, id))

        return page

    async def _file(self, request: Request, name: str) -> Response:
        body = FILES.get(name)
        if body is None or not self._here(request):
            return Response(status_code=404)
        kind = TYPES[f".{name.rpartition('.')[2]}"]
        kept = {"cache-control": "public, max-age=31536000, immutable", "x-content-type-options": "nosniff"}
        return Response(body, headers={**kept, "content-type": kind})

    async def _sign_in(self, request: Request) -> Response:
        """Whoever comes this way left before, and may come back as somebody else."""
        if not self._here(request):
            return Response(status_code=404)
        try:
            where, cookie = await self._door.begin(self.prefix, anew=True)
        except Fault as fault:
            return self._refused(fault)
        return _go(where, [cookie])

    async def _signed_in(self, request: Request) -> Response:
        if not self._here(request):
            return Response(status_code=404)
        try:
            back, cookies = await self._door.finish(request.query_params, request.cookies)
        except Fault as fault:
            return self._refused(fault)
        return _go(back, cookies)

    async def _sign_out(self, request: Request) -> Response:
        if not self._here(request):
            return Response(status_code=404)
        caller = await self._door.who(request.cookies)
        cookies = await self._door.leave(caller, request.cookies)
        left = alone(
            self.prefix,
            "Signed out",
            h.h1("Signed out"),
            h.p(h.a("Sign in again", href=f"{self.prefix}/sign-in", class_="go")),
        )
        return _html(left, 200, cookies)

    # ---- what they share ----

    async def _shown(self, request: Request, make: Callable[[ConsoleQueries], Awaitable[ConsolePage]]) -> Response:
        if not self._here(request) or len(request.scope["query_string"]) > _MAX_QUERY:
            return Response(status_code=404)
        try:
            operator = await self._door.who(request.cookies)
            if operator is None:
                if _LIVE in request.headers:
                    return Response(status_code=401, headers=HEADERS)
                back = self.prefix + request.scope["path"].removeprefix("/console")
                query: str = request.scope["query_string"].decode("ascii", "replace")
                where, cookie = await self._door.begin(f"{back}?{query}" if query else back)
                return _go(where, [cookie])
            if SCOPE not in operator.scopes:
                raise Fault(Kind.DENIED, f"You may not use the console: it needs the scope {SCOPE}.")
            look = self._look(request, operator)
            return _html(whole(look, await make(look)))
        except Fault as fault:
            return self._refused(fault)

    def _look(self, request: Request, operator: Caller) -> ConsoleQueries:
        """Another tenant than one's own is as if there were none."""
        query = dict(request.query_params)
        reach = self._sources.reach(operator) if self._door.authority is not None else None
        named = query.get("tenant") or None
        known = named in (None, reach) if reach is not None else named is None or named in self._sources.tenants()
        if not known:
            raise Fault(Kind.NOT_FOUND, "There is no such tenant.")
        return ConsoleQueries(
            sources=self._sources,
            operator=operator,
            tenant=reach if reach is not None else named,
            everywhere=reach is None,
            prefix=self.prefix,
            signed_in=self._door.authority is not None,
            query=query,
        )

    def _here(self, request: Request) -> bool:
        """On the operators' own port where there is one. Where nobody is asked, only under this machine's own name:
        another site's name could lead a browser here."""
        if self._apart and not request.scope.get(_OPS):
            return False
        host = request.headers.get("host", "").encode("latin-1")
        return self._door.authority is not None or self._host_allowed(host)

    def _refused(self, fault: Fault) -> Response:
        title = "Not found" if fault.kind is Kind.NOT_FOUND else "Not possible"
        again = (
            h.form(h.button("Sign in as somebody else", class_="go"), method="post", action=f"{self.prefix}/sign-out")
            if fault.kind is Kind.DENIED
            else h.p(h.a("To the overview", href=self.prefix))
        )
        said = alone(self.prefix, title, h.h1(title), h.p(fault.message), again)
        return _html(said, TABLE[fault.kind].http)


def _html(text: str, status: int = 200, cookies: list[str] | None = None) -> Response:
    response = Response(text, status, headers={**HEADERS, "content-type": "text/html; charset=utf-8"})
    for cookie in cookies or ():
        response.headers.append("set-cookie", cookie)
    return response


def _go(where: str, cookies: list[str]) -> Response:
    response = Response(status_code=303, headers={"location": where, "cache-control": "no-store"})
    for cookie in cookies:
        response.headers.append("set-cookie", cookie)
    return response
