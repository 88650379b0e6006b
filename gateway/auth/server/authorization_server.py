"""The embedded authorization server: one method per route, and its metadata (RFC 8414, OpenID discovery).

It is independent of the web framework; `gateway.edge.oauth_routes` connects it to HTTP.
"""

import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from gateway.auth.browser_sessions import SESSION_SECONDS, BrowserSessions, UserKey
from gateway.auth.providers.identity import SignInRefused
from gateway.auth.providers.signin import ProviderSignIn
from gateway.auth.server import pages
from gateway.auth.server.authlib_core import AuthlibServer, AuthorizationRejected, OAuthResponse, add_issuer
from gateway.auth.server.authlib_types import Pairs
from gateway.auth.server.clients import RegisteredClient, RegisteredClients
from gateway.auth.server.pages import CsrfTokens, HtmlPage
from gateway.auth.server.protocols import ApprovedRequest, AuthorizationRequest
from gateway.auth.server.redirect_uris import is_trusted
from gateway.auth.server.registration import InvalidRegistration, parse_registration
from gateway.auth.server.signin import SignIn
from gateway.auth.thread_pool import ThreadPool
from gateway.auth.users import User
from gateway.contract import Json
from gateway.errors import Fault

# Authlib logs tokens at the DEBUG level.
logging.getLogger("authlib").setLevel(logging.INFO)

_NO_STORE: Final = ("cache-control", "no-store")


@dataclass(frozen=True, slots=True)
class PendingAuthorization:
    """A valid authorization request that waits for sign-in or consent."""

    client: RegisteredClient
    request: AuthorizationRequest
    grant: Any


class AuthorizationServer:
    """Each public method handles one route and returns status, headers, and JSON or text.

    The flows run in `threads`. `prefetch_clients` fetches client metadata documents before a flow starts, so that no
    thread waits for a client's web server.
    """

    def __init__(
        self,
        *,
        public_url: str,
        local: bool,
        core: AuthlibServer,
        threads: ThreadPool,
        prefetch_clients: Callable[[Mapping[str, str], str], Awaitable[None]],
        clients: RegisteredClients,
        browsers: BrowserSessions,
        sign_in: SignIn,
        forms: CsrfTokens,
        redirects: Sequence[str],
        first_party_redirects: Iterable[str] = (),
        describe_scope: Callable[[str], tuple[str, str]],
        providers: ProviderSignIn | None = None,
        token_owner: Callable[[str], Awaitable[UserKey | None]] | None = None,
    ) -> None:
        """`redirects` are redirect URIs that the operator allows; `first_party_redirects` belong to the gateway.

        `describe_scope` returns a title and a detail for the consent page. `providers` signs users in at identity
        providers; `token_owner` returns the user of a refresh token, whom the provider must confirm.
        """
        self._providers = providers
        self._token_owner = token_owner
        self._describe_scope = describe_scope
        self._public_url = public_url
        self._local = local
        self._core = core
        self._threads = threads
        self._prefetch_clients = prefetch_clients
        self._clients = clients
        self._browsers = browsers
        self._sign_in = sign_in
        self._forms = forms
        self._redirects = redirects
        self._trusted = frozenset((*redirects, *first_party_redirects))
        secure = public_url.startswith("https://")
        # Browsers accept the `__Host-` prefix only over TLS; a loopback gateway has no TLS.
        self.cookie = "__Host-gatehouse" if secure else "gatehouse"
        self._cookie_end = "; Path=/; HttpOnly; SameSite=Lax" + ("; Secure" if secure else "")

    # ---- routes for clients

    async def token(self, headers: Mapping[str, str], form: Pairs, address: str = "") -> OAuthResponse:
        if repeated := _repeated_parameter(form):
            return _error_response(400, "invalid_request", f"Multiple '{repeated}' in request.")
        await self._prefetch_clients(dict(form), address)
        await self._confirm_owner(dict(form))
        return await self._threads(self._core.token_response, self._core.build_request("POST", form, headers))

    async def revoke(self, headers: Mapping[str, str], form: Pairs, address: str = "") -> OAuthResponse:
        await self._prefetch_clients(dict(form), address)
        return await self._threads(self._core.revocation_response, self._core.build_request("POST", form, headers))

    async def register(self, body: bytes) -> OAuthResponse:
        try:
            registration = parse_registration(body, local=self._local, allowed=self._redirects)
        except InvalidRegistration as error:
            return _error_response(400, error.error, error.description)
        credentials = await self._clients.register(
            registration.name, registration.redirect_uris, registration.auth_method, registration.grant_types
        )
        return 201, [_NO_STORE], {**registration.as_metadata(), **credentials}

    # ---- routes for browsers

    async def authorize_page(self, query: Pairs, cookies: Mapping[str, str], address: str = "") -> OAuthResponse:
        """Handle GET of the authorization endpoint: sign-in page, consent page or redirect."""
        pending = await self._pending_authorization(query, address)
        if not isinstance(pending, PendingAuthorization):
            return pending
        user = await self._current_user(cookies.get(self.cookie))
        if user is None:
            return await self._sign_in_page(pending, query, cookies)
        if pending.client.first_party:
            return await self._complete(pending, user, allow=True)
        scopes = [scope for scope in pending.request.scopes.split() if scope in user.scopes]
        csrf = self._forms.token(cookies[self.cookie], query)
        endpoint = self._endpoint(pending)
        user_key = (user.tenant, user.subject)
        described = [(scope, *self._describe_scope(scope)) for scope in scopes]
        page = pages.consent_page(pending.client, pending.request.redirect_uri, described, user_key, endpoint, csrf)
        return _html_response(page)

    async def submit_form(
        self, query: Pairs, form: Mapping[str, str], cookies: Mapping[str, str], address: str
    ) -> OAuthResponse:
        """Handle POST of the authorization endpoint: a submitted sign-in or consent form."""
        pending = await self._pending_authorization(query, address)
        if not isinstance(pending, PendingAuthorization):
            return pending
        session = cookies.get(self.cookie)
        user = await self._current_user(session)
        secret = session if user is not None else cookies.get(self._forms.cookie)
        if not self._forms.verify(form.get("csrf", ""), secret, query):
            return _html_response(
                pages.error_page("This page has expired. Return to the application and start again."), 400
            )
        if user is None and form.get("what") == "provider":
            return await self._leave_for_provider(pending, query, form, cookies)
        if user is None:
            return await self._submit_sign_in(pending, query, form, cookies, address)
        if form.get("what") == "leave":
            assert session is not None
            await self._browsers.sign_out(session)
            again = [(name, value) for name, value in query if name != "prompt"]
            if user.valid_until is not None:
                again.append(("prompt", "login"))  # the provider would sign the same user in silently
            return self._redirect_to_authorize(again, f"{self.cookie}=; Max-Age=0{self._cookie_end}")
        return await self._complete(pending, user, allow=form.get("decision") == "allow")

    async def sign_out(self, cookies: Mapping[str, str]) -> list[str]:
        """End the session of this browser and return the cookies to set."""
        if (session := cookies.get(self.cookie)) is not None:
            await self._browsers.sign_out(session)
        return [f"{self.cookie}=; Max-Age=0{self._cookie_end}"]

    # ---- routes for identity providers

    async def provider_callback(
        self, provider: str, response: Pairs, cookies: Mapping[str, str], address: str
    ) -> OAuthResponse:
        """Handle the redirect of a provider: sign the user in and complete the request that was consented to."""
        if self._providers is None:
            return _html_response(pages.error_page("No identity provider is configured."), 404)
        if _repeated_parameter(response):
            return _html_response(pages.error_page("The identity provider sent a parameter more than once."), 400)
        try:
            finished = await self._providers.finish(provider, dict(response), cookies.get(self._forms.cookie, ""))
        except SignInRefused as refused:
            return _html_response(pages.refused_page(str(refused)), 403)
        pending = await self._pending_authorization(finished.query, address)
        user = await self._providers.find_user(finished.user)
        if not isinstance(pending, PendingAuthorization) or user is None:
            return pending if not isinstance(pending, PendingAuthorization) else self._expired_page()
        seconds = min(SESSION_SECONDS, self._providers.session_seconds)
        secret = await self._browsers.sign_in(finished.user, seconds)
        status, headers, body = await self._complete(pending, user, allow=True)
        cookie = f"{self.cookie}={secret}; Max-Age={int(seconds)}{self._cookie_end}"
        return status, [*headers, ("set-cookie", cookie)], body

    async def provider_logout(self, provider: str, form: Mapping[str, str]) -> OAuthResponse:
        """Handle a logout token of a provider (OpenID Connect Back-Channel Logout)."""
        if self._providers is None:
            return _error_response(404, "invalid_request", "No identity provider is configured.")
        try:
            await self._providers.log_out(provider, form.get("logout_token", ""))
        except SignInRefused as refused:
            return _error_response(400, "invalid_request", str(refused))
        return 200, [_NO_STORE], {}

    # ---- steps

    async def _current_user(self, session: str | None) -> User | None:
        """Return the user of a session, if the provider of that user confirmed it recently."""
        user = await self._browsers.find_user(session)
        if user is None or self._providers is None or user.valid_until is None:
            return user
        recent = self._providers.recheck_seconds
        try:
            confirmed = await self._providers.confirm((user.tenant, user.subject), max_age=recent)
        except Fault:  # unreachable for too long: the user may choose another way to sign in
            return None
        return await self._browsers.find_user(session) if confirmed else None

    async def _confirm_owner(self, form: Mapping[str, str]) -> None:
        """Ask the provider about the user of a refresh token before it is used.

        A refused user has no access afterwards, so that the refresh is rejected. Raises `Fault(UNAVAILABLE)`.
        """
        if self._providers is None or self._token_owner is None or form.get("grant_type") != "refresh_token":
            return
        owner = await self._token_owner(form.get("refresh_token", ""))
        if owner is not None:
            await self._providers.confirm(owner)

    async def _leave_for_provider(
        self, pending: PendingAuthorization, query: Pairs, form: Mapping[str, str], cookies: Mapping[str, str]
    ) -> OAuthResponse:
        if form.get("decision") == "deny":
            return self._with_issuer(*await self._threads(self._core.complete_authorization, pending.grant, None))
        name = form.get("provider", "")
        try:
            if self._providers is None:
                raise SignInRefused("No identity provider is configured.")
            url = await self._providers.begin(name, query, cookies.get(self._forms.cookie, ""))
        except SignInRefused as refused:
            return await self._sign_in_page(pending, query, cookies, str(refused))
        return _html_response(pages.leaving_page(dict(self._providers.labels)[name], url))

    def _endpoint(self, pending: PendingAuthorization) -> str:
        return pending.request.resource.removeprefix(self._public_url)

    def _expired_page(self) -> OAuthResponse:
        return _html_response(pages.refused_page("Your access ended while you signed in. Start again."), 403)

    async def _pending_authorization(self, query: Pairs, address: str) -> PendingAuthorization | OAuthResponse:
        """Return the validated request, or an error response.

        The error goes to the client if its redirect URI is trusted, otherwise to the user.
        """
        if repeated := _repeated_parameter(query):
            return _html_response(
                pages.error_page(f"The application sent the parameter '{repeated}' more than once."), 400
            )
        await self._prefetch_clients(dict(query), address)
        try:
            return PendingAuthorization(
                *await self._threads(self._core.validate_authorization, self._core.build_request("GET", query, {}))
            )
        except AuthorizationRejected as rejected:
            message = f"The application sent an invalid request: {rejected.message}"
            if rejected.response is None:
                return _html_response(pages.error_page(message), 400)
            response = self._with_issuer(*rejected.response)
            if is_trusted(rejected.redirect_uri, self._trusted):
                return response
            # Anyone can register a client and send an invalid request; a redirect would make the gateway an open
            # redirector (RFC 9700, 4.11.2).
            location = next(value for name, value in response[1] if name.lower() == "location")
            return _html_response(pages.error_page(message, location), 400)

    async def _sign_in_page(
        self,
        pending: PendingAuthorization,
        query: Pairs,
        cookies: Mapping[str, str],
        error: str | None = None,
        name: str = "",
    ) -> OAuthResponse:
        secret, cookie = self._forms.secret(cookies)
        csrf = self._forms.token(secret, query)
        codes, passwords = await self._sign_in.available_methods()
        if self._providers is None:
            page = pages.sign_in_page(pending.client, csrf, codes=codes, passwords=passwords, error=error, name=name)
        else:
            page = pages.provider_page(
                pending.client,
                pending.request.redirect_uri,
                [(scope, *self._describe_scope(scope)) for scope in pending.request.scopes.split()],
                self._endpoint(pending),
                self._providers.labels,
                csrf,
                passwords=passwords,
                error=error,
                name=name,
            )
        status, headers, body = _html_response(page)
        if cookie is not None:
            headers.append(("set-cookie", cookie + self._cookie_end))
        return status, headers, body

    async def _submit_sign_in(
        self,
        pending: PendingAuthorization,
        query: Pairs,
        form: Mapping[str, str],
        cookies: Mapping[str, str],
        address: str,
    ) -> OAuthResponse:
        try:
            user_key = await self._sign_in.attempt(form, address)
        except Fault as fault:
            return await self._sign_in_page(pending, query, cookies, fault.message, form.get("name", "")[:200])
        secret = await self._browsers.sign_in(user_key)
        return self._redirect_to_authorize(
            query, f"{self.cookie}={secret}; Max-Age={SESSION_SECONDS}{self._cookie_end}"
        )

    async def _complete(self, pending: PendingAuthorization, user: User, *, allow: bool) -> OAuthResponse:
        approved = None
        if allow:
            scopes = [scope for scope in pending.request.scopes.split() if scope in user.scopes]
            approved = ApprovedRequest(user.tenant, user.subject, " ".join(scopes))
        response = await self._threads(self._core.complete_authorization, pending.grant, approved)
        if approved is not None:
            await self._clients.record_use(pending.client.id)
        return self._with_issuer(*response)

    def _with_issuer(self, status: int, headers: list[tuple[str, str]], body: Any) -> OAuthResponse:
        """Add `iss` to the redirect (RFC 9207). Clients that support it reject a response without it, even an error."""
        with_iss = [
            (name, add_issuer(value, self._public_url) if name.lower() == "location" else value)
            for name, value in headers
        ]
        return 303 if status == 302 else status, [*with_iss, _NO_STORE, ("referrer-policy", "no-referrer")], body

    def _redirect_to_authorize(self, query: Pairs, cookie: str) -> OAuthResponse:
        """Redirect to the same authorization request with a new session cookie."""
        path = urlsplit(self._public_url).path
        return 303, [("location", f"{path}/oauth/authorize?{urlencode(query)}"), ("set-cookie", cookie), _NO_STORE], ""


def encode_response(answer: OAuthResponse) -> tuple[int, list[tuple[str, str]], bytes]:
    """Encode the body as bytes: text as is, anything else as JSON."""
    status, headers, body = answer
    if isinstance(body, str):
        return status, headers, body.encode()
    kept = [(name, value) for name, value in headers if name.lower() != "content-type"]
    return status, [*kept, ("content-type", "application/json")], json.dumps(body).encode()


def _html_response(page: HtmlPage, status: int = 200) -> OAuthResponse:
    return status, page.headers, page.html


def _error_response(status: int, error: str, description: str) -> OAuthResponse:
    body: Json = {"error": error, "error_description": description}
    return status, [_NO_STORE], body


def _repeated_parameter(pairs: Pairs) -> str | None:
    """Return a parameter that occurs more than once. `resource` may repeat; its reader checks it."""
    names = [name for name, _ in pairs if name != "resource"]
    return next((name for name in names if names.count(name) > 1), None)


def server_metadata(public_url: str, scopes: Iterable[str], *, documents: bool) -> Json:
    """Build the RFC 8414 metadata. `documents` tells whether a client id may be the URL of a metadata document."""
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


def openid_metadata(document: Json) -> Json:
    """Build the OpenID discovery document for clients that look for it. The server issues no ID tokens."""
    return {**document, "subject_types_supported": ["public"], "id_token_signing_alg_values_supported": ["ES256"]}
