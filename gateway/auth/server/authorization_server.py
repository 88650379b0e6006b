"""The embedded authorization server: what its routes answer. It knows nothing of how requests come and go.

What the authorization server says of itself (RFC 8414, OpenID discovery).
"""

import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from gateway.auth.browser_sessions import SESSION_SECONDS, BrowserSessions
from gateway.auth.server import pages
from gateway.auth.server.authlib_core import Answer, AuthlibServer, NotGranted, with_issuer
from gateway.auth.server.authlib_types import Pairs
from gateway.auth.server.clients import RegisteredClient, RegisteredClients
from gateway.auth.server.pages import CsrfTokens, HtmlPage
from gateway.auth.server.protocols import ApprovedRequest, AuthorizationRequest
from gateway.auth.server.redirect_uris import trusted
from gateway.auth.server.registration import InvalidRegistration, read
from gateway.auth.server.signin import SignIn
from gateway.auth.thread_pool import ThreadPool
from gateway.auth.users import Users
from gateway.contract import Json
from gateway.errors import Fault

# It prints live tokens when it is asked for every detail.
logging.getLogger("authlib").setLevel(logging.INFO)

_NO_STORE: Final = ("cache-control", "no-store")


@dataclass(frozen=True, slots=True)
class PendingAuthorization:
    """An authorization request that was found good and waits for a person."""

    client: RegisteredClient
    asked: AuthorizationRequest
    grant: Any


class AuthorizationServer:
    """Each method answers one route: status, headers, and JSON or text.

    The flows run in `threads`; `meet` learns of a client that is described elsewhere before they do, so that none of
    them waits for a stranger's server.
    """

    def __init__(
        self,
        *,
        public_url: str,
        local: bool,
        core: AuthlibServer,
        threads: ThreadPool,
        meet: Callable[[Mapping[str, str], str], Awaitable[None]],
        clients: RegisteredClients,
        users: Users,
        browsers: BrowserSessions,
        sign_in: SignIn,
        forms: CsrfTokens,
        redirects: Sequence[str],
        own: Iterable[str] = (),
    ) -> None:
        """`redirects` may be registered beside what anybody may; `own` are those of our own pages."""
        self._public_url = public_url
        self._local = local
        self._core = core
        self._threads = threads
        self._meet = meet
        self._clients = clients
        self._users = users
        self._browsers = browsers
        self._sign_in = sign_in
        self._forms = forms
        self._redirects = redirects
        self._trusted = frozenset((*redirects, *own))
        secure = public_url.startswith("https://")
        # A name that browsers only take from the whole host, over TLS; on loopback there is none.
        self.cookie = "__Host-gatehouse" if secure else "gatehouse"
        self._cookie_end = "; Path=/; HttpOnly; SameSite=Lax" + ("; Secure" if secure else "")

    # ---- for programs

    async def token(self, headers: Mapping[str, str], form: Pairs, address: str = "") -> Answer:
        if twice := _twice(form):
            return _error(400, "invalid_request", f"Multiple '{twice}' in request.")
        await self._meet(dict(form), address)
        return await self._threads(self._core.tokens, self._core.request("POST", form, headers))

    async def revoke(self, headers: Mapping[str, str], form: Pairs, address: str = "") -> Answer:
        await self._meet(dict(form), address)
        return await self._threads(self._core.revoked, self._core.request("POST", form, headers))

    async def register(self, body: bytes) -> Answer:
        try:
            said = read(body, local=self._local, allowed=self._redirects)
        except InvalidRegistration as unfit:
            return _error(400, unfit.error, unfit.description)
        made = await self._clients.register(said.name, said.redirect_uris, said.auth_method, said.grant_types)
        return 201, [_NO_STORE], {**said.shown(), **made}

    # ---- for browsers

    async def show(self, query: Pairs, cookies: Mapping[str, str], address: str = "") -> Answer:
        """The authorization endpoint, as a browser comes to it."""
        waiting = await self._waiting(query, address)
        if not isinstance(waiting, PendingAuthorization):
            return waiting
        who = await self._browsers.who(cookies.get(self.cookie))
        if who is None or (user := await self._users.find(*who)) is None:
            return await self._ask_who(waiting, query, cookies)
        if waiting.client.own:
            return await self._decided(waiting, who, allow=True)
        scopes = [scope for scope in waiting.asked.scopes.split() if scope in user.scopes]
        csrf = self._forms.token(cookies[self.cookie], query)
        endpoint = waiting.asked.resource.removeprefix(self._public_url)
        page = pages.consent(waiting.client, waiting.asked.redirect_uri, scopes, who, endpoint, csrf)
        return _shown(page)

    async def decide(self, query: Pairs, form: Mapping[str, str], cookies: Mapping[str, str], address: str) -> Answer:
        """What a person sent from one of the pages."""
        waiting = await self._waiting(query, address)
        if not isinstance(waiting, PendingAuthorization):
            return waiting
        session = cookies.get(self.cookie)
        who = await self._browsers.who(session)
        secret = session if who is not None else cookies.get(self._forms.cookie)
        if not self._forms.holds(form.get("csrf", ""), secret, query):
            return _shown(
                pages.problem("This page was open for too long. Go back to your program and begin again."), 400
            )
        if who is None:
            return await self._signed_in(waiting, query, form, cookies, address)
        if form.get("what") == "leave":
            assert session is not None
            await self._browsers.sign_out(session)
            return self._again(query, f"{self.cookie}=; Max-Age=0{self._cookie_end}")
        return await self._decided(waiting, who, allow=form.get("decision") == "allow")

    async def sign_out(self, cookies: Mapping[str, str]) -> list[str]:
        """Forget this browser; the cookies to set for it."""
        if (session := cookies.get(self.cookie)) is not None:
            await self._browsers.sign_out(session)
        return [f"{self.cookie}=; Max-Age=0{self._cookie_end}"]

    # ---- the steps

    async def _waiting(self, query: Pairs, address: str) -> PendingAuthorization | Answer:
        """The request, when it is good; else the answer: to the client where we trust its address, to the person
        otherwise."""
        if twice := _twice(query):
            return _shown(pages.problem(f"The program sent {twice} twice."), 400)
        await self._meet(dict(query), address)
        try:
            return PendingAuthorization(*await self._threads(self._core.wanted, self._core.request("GET", query, {})))
        except NotGranted as refused:
            words = f"The program that sent you here made a mistake: {refused.words}"
            if refused.back is None:
                return _shown(pages.problem(words), 400)
            back = self._with_issuer(*refused.back)
            if trusted(refused.to, self._trusted):
                return back
            # Anybody can register a client and make it fail: our name would send people wherever they like (RFC 9700,
            # 4.11.2).
            there = next(value for name, value in back[1] if name.lower() == "location")
            return _shown(pages.problem(words, there), 400)

    async def _ask_who(
        self,
        waiting: PendingAuthorization,
        query: Pairs,
        cookies: Mapping[str, str],
        bad: str | None = None,
        name: str = "",
    ) -> Answer:
        secret, cookie = self._forms.secret(cookies)
        csrf = self._forms.token(secret, query)
        codes, passwords = await self._sign_in.ways()
        page = pages.sign_in(waiting.client, csrf, codes=codes, passwords=passwords, bad=bad, name=name)
        status, headers, body = _shown(page)
        if cookie is not None:
            headers.append(("set-cookie", cookie + self._cookie_end))
        return status, headers, body

    async def _signed_in(
        self,
        waiting: PendingAuthorization,
        query: Pairs,
        form: Mapping[str, str],
        cookies: Mapping[str, str],
        address: str,
    ) -> Answer:
        try:
            who = await self._sign_in.attempt(form, address)
        except Fault as fault:
            return await self._ask_who(waiting, query, cookies, fault.message, form.get("name", "")[:200])
        secret = await self._browsers.sign_in(who)
        return self._again(query, f"{self.cookie}={secret}; Max-Age={SESSION_SECONDS}{self._cookie_end}")

    async def _decided(self, waiting: PendingAuthorization, who: tuple[str, str], *, allow: bool) -> Answer:
        user = await self._users.find(*who)
        approved = None
        if allow and user is not None:
            left = [scope for scope in waiting.asked.scopes.split() if scope in user.scopes]
            approved = ApprovedRequest(*who, " ".join(left))
        answer = await self._threads(self._core.decided, waiting.grant, approved)
        if approved is not None:
            await self._clients.used(waiting.client.id)
        return self._with_issuer(*answer)

    def _with_issuer(self, status: int, headers: list[tuple[str, str]], body: Any) -> Answer:
        """RFC 9207, on success and on error: a client that was told to expect it refuses an answer without it."""
        shown = [
            (name, with_issuer(value, self._public_url) if name.lower() == "location" else value)
            for name, value in headers
        ]
        return 303 if status == 302 else status, [*shown, _NO_STORE, ("referrer-policy", "no-referrer")], body

    def _again(self, query: Pairs, cookie: str) -> Answer:
        """Back to the same request, as a browser that is known now, or not any more."""
        path = urlsplit(self._public_url).path
        return 303, [("location", f"{path}/oauth/authorize?{urlencode(query)}"), ("set-cookie", cookie), _NO_STORE], ""


def encoded(answer: Answer) -> tuple[int, list[tuple[str, str]], bytes]:
    """As bytes: JSON unless it is text already."""
    status, headers, body = answer
    if isinstance(body, str):
        return status, headers, body.encode()
    given = [(name, value) for name, value in headers if name.lower() != "content-type"]
    return status, [*given, ("content-type", "application/json")], json.dumps(body).encode()


def _shown(page: HtmlPage, status: int = 200) -> Answer:
    return status, page.headers, page.html


def _error(status: int, error: str, description: str) -> Answer:
    said: Json = {"error": error, "error_description": description}
    return status, [_NO_STORE], said


def _twice(pairs: Pairs) -> str | None:
    """A parameter that came more than once; only `resource` may, and is judged where it is read."""
    names = [name for name, _ in pairs if name != "resource"]
    return next((name for name in names if names.count(name) > 1), None)


def document(public_url: str, scopes: Iterable[str], *, documents: bool) -> Json:
    """`documents`: whether a client's id may be the address of a document about it."""
    at = f"{public_url}/oauth"
    methods = ["none", "client_secret_basic", "client_secret_post", "private_key_jwt"]
    return {
        "issuer": public_url,
        "authorization_endpoint": f"{at}/authorize",
        "token_endpoint": f"{at}/token",
        "registration_endpoint": f"{at}/register",
        "revocation_endpoint": f"{at}/revoke",
        "jwks_uri": f"{at}/jwks",
        "scopes_supported": sorted(scopes),
        "response_types_supported": ["code"],
        "response_modes_supported": ["query"],
        "grant_types_supported": ["authorization_code", "refresh_token", "client_credentials"],
        "code_challenge_methods_supported": ["S256"],
        "token_endpoint_auth_methods_supported": methods,
        "token_endpoint_auth_signing_alg_values_supported": ["ES256", "RS256"],
        "revocation_endpoint_auth_methods_supported": methods,
        "revocation_endpoint_auth_signing_alg_values_supported": ["ES256", "RS256"],
        "authorization_response_iss_parameter_supported": True,
        "client_id_metadata_document_supported": documents,
    }


def openid(document: Json) -> Json:
    """The same for clients that only know OpenID's address; no ID tokens are issued."""
    return {**document, "subject_types_supported": ["public"], "id_token_signing_alg_values_supported": ["ES256"]}
