"""Sign-in to the console and the account pages: OAuth code flow with PKCE, then a sealed cookie.

The cookie expires with the access token. The browser then repeats the flow, which needs no input while the user is
still signed in at the authorization server, and so picks up changed rights.
"""

import base64
import hashlib
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from hmac import compare_digest
from typing import Final, Literal, Protocol
from urllib.parse import urlencode

import msgspec

from gateway.contract import Caller
from gateway.contract.caller import ADMIN, APPROVE
from gateway.errors import Fault, Kind

SCOPE: Final = ADMIN
ENTRY_SCOPES: Final = (ADMIN, APPROVE)
"""Scopes that let a user sign in. An approver without the first sees the Approvals pages only."""
_RESOURCE_PATH: Final = "/mcp"
"""Required resource of the access token: the main endpoint."""
_REDIRECT_SECONDS: Final = 600.0
_FORM_SECONDS: Final = 3600.0
_MAX_SESSION_SECONDS: Final = 8 * 3600.0
"""Upper limit of a session, even if the token lives longer."""

Form = Mapping[str, str]


class CookieSeal(Protocol):
    """Encrypts and authenticates cookie values; a value sealed for one purpose does not open for another."""

    def seal(self, purpose: str, payload: bytes) -> str: ...

    def open(self, purpose: str, text: str) -> bytes | None: ...


@dataclass(frozen=True, slots=True)
class SignInAuthority:
    """The authorization server for console sign-in: the embedded one, or an external identity provider."""

    issuer: str
    client_id: str
    scopes: str
    authorization_endpoint: Callable[[], Awaitable[str]]
    """Returns the URL of the authorization endpoint. Raises `Fault` when the authority is unreachable."""
    exchange_code: Callable[[Form], Awaitable[str | None]]
    """Exchanges an authorization code for an access token; None when the code is rejected."""
    sign_out: Callable[[Caller | None, Mapping[str, str]], Awaitable[list[str]]]
    """Ends the session at the authority and revokes its token here. Returns the cookies to set."""
    requirements: str = ""
    """Describes the tokens the console needs; appended to sign-in errors for the operator who configures it."""


class SignInRedirect(msgspec.Struct, frozen=True):
    """State of a sign-in in progress, kept in a cookie during the redirect to the authority."""

    state: str
    verifier: str
    return_to: str
    expires: float


class FormToken(msgspec.Struct, frozen=True):
    """Content of the hidden field that protects a form against requests from other sites."""

    principal: str
    token: str
    expires: float


class ConsoleSession(msgspec.Struct, frozen=True):
    """Content of the session cookie: the caller as the access token described it."""

    tenant: str
    subject: str
    kind: Literal["user", "service"]
    groups: list[str]
    scopes: list[str]
    credential: str
    client: str
    token: str
    expires: float
    issued: float = 0.0


class ConsoleSignIn:
    """Signs users in and out. Without an authority (`auth.mode: none`) every request is `anonymous`."""

    def __init__(
        self,
        *,
        authority: SignInAuthority | None,
        anonymous: Caller,
        cookie_seal: CookieSeal,
        verify_token: Callable[[str], Awaitable[Caller | None]],
        is_valid: Callable[[Caller], Awaitable[bool]],
        redirect_uri: str,
        resource: str,
        scopes: frozenset[str] | None = frozenset(ENTRY_SCOPES),
        cookie: str = "gatehouse-console",
    ) -> None:
        self._scopes = scopes
        self._purpose = cookie.removeprefix("gatehouse-")
        self.authority = authority
        self.anonymous = anonymous
        self._cookie_seal = cookie_seal
        self._verify_token = verify_token
        self._is_valid = is_valid
        self._redirect_uri = redirect_uri
        self._resource = resource
        secure = redirect_uri.startswith("https://")
        # Browsers accept the __Host- prefix only over TLS, so plain HTTP on loopback uses a name without it.
        self._cookie = f"__Host-{cookie}" if secure else cookie
        self._cookie_attributes = "; Path=/; HttpOnly; SameSite=Lax" + ("; Secure" if secure else "")

    async def authenticate(self, cookies: Mapping[str, str]) -> Caller | None:
        """The caller of a valid session cookie; None if it is invalid, expired or revoked."""
        if self.authority is None:
            return self.anonymous
        payload = self._cookie_seal.open(f"{self._purpose} session", cookies.get(self._cookie, ""))
        if payload is None:
            return None
        session = msgspec.json.decode(payload, type=ConsoleSession)
        if session.expires <= time.time():
            return None
        caller = Caller(
            session.tenant, session.subject, session.kind, frozenset(session.groups), frozenset(session.scopes),
            session.credential, session.expires, client=session.client, token=session.token, issued=session.issued,
        )  # fmt: skip
        return caller if await self._is_valid(caller) else None

    def form_token(self, caller: Caller) -> str:
        """A token for the forms of this session's pages."""
        payload = FormToken(caller.principal, caller.token, time.time() + _FORM_SECONDS)
        return self._cookie_seal.seal("console form", msgspec.json.encode(payload))

    def check_form_token(self, caller: Caller, text: str) -> None:
        """Raise `Fault` unless `text` is a form token of this session."""
        payload = self._cookie_seal.open("console form", text)
        token = msgspec.json.decode(payload, type=FormToken) if payload is not None else None
        if token is None or (token.principal, token.token) != (caller.principal, caller.token):
            raise Fault(Kind.DENIED, "This form does not belong to your session. Open the page again.")
        if token.expires <= time.time():
            raise Fault(Kind.DENIED, "This form has expired. Open the page again.")

    async def begin(self, return_to: str, *, force_login: bool = False) -> tuple[str, list[str]]:
        """Return the authorization URL and the cookies to set. `force_login` makes the authority prompt for a login,
        so that another user can sign in. Raises `Fault`."""
        authority = self._require_authority()
        expires = time.time() + _REDIRECT_SECONDS
        pending = SignInRedirect(secrets.token_urlsafe(24), secrets.token_urlsafe(48), return_to, expires)
        digest = hashlib.sha256(pending.verifier.encode()).digest()
        query = {
            "response_type": "code",
            "client_id": authority.client_id,
            "redirect_uri": self._redirect_uri,
            "state": pending.state,
            "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
            "code_challenge_method": "S256",
            "resource": self._resource,
            "scope": authority.scopes,
        }
        if force_login:
            # The gateway cannot end the session at an identity provider, so it asks for a prompt.
            query["prompt"] = "login"
        endpoint = await authority.authorization_endpoint()
        separator = "&" if "?" in endpoint else "?"
        sealed = self._cookie_seal.seal(f"{self._purpose} way", msgspec.json.encode(pending))
        return f"{endpoint}{separator}{urlencode(query)}", [self._cookie_header("-way", sealed, _REDIRECT_SECONDS)]

    async def finish(self, query: Mapping[str, str], cookies: Mapping[str, str]) -> tuple[str, list[str]]:
        """Complete a sign-in. Return the page to go to and the cookies to set. Raises `Fault`."""
        authority = self._require_authority()
        payload = self._cookie_seal.open(f"{self._purpose} way", cookies.get(f"{self._cookie}-way", ""))
        pending = msgspec.json.decode(payload, type=SignInRedirect) if payload is not None else None
        state = query.get("state", "").encode()
        if pending is None or pending.expires <= time.time() or not compare_digest(pending.state.encode(), state):
            raise Fault(
                Kind.INVALID_INPUT, "This sign-in expired or was started in another browser. Open the console again."
            )
        # RFC 9207: reject a response from another issuer.
        if query.get("iss", authority.issuer) != authority.issuer:
            raise Fault(
                Kind.INVALID_INPUT, "The sign-in response comes from an unexpected issuer. Open the console again."
            )
        if "code" not in query:
            raise _authorization_error(query.get("error", ""), authority.requirements)
        form = {
            "grant_type": "authorization_code",
            "code": query["code"],
            "redirect_uri": self._redirect_uri,
            "client_id": authority.client_id,
            "code_verifier": pending.verifier,
            "resource": self._resource,
        }
        token = await authority.exchange_code(form)
        caller = await self._verify_token(token) if token is not None else None
        if caller is None:
            message = "The access token was rejected. Open the console again to sign in."
            raise Fault(Kind.INVALID_INPUT, _with_requirements(message, authority.requirements))
        lacks_scope = self._scopes is not None and caller.scopes.isdisjoint(self._scopes)
        if lacks_scope or not caller.token or caller.resource != _RESOURCE_PATH:
            raise missing_scope(authority.requirements)
        return pending.return_to, [self._session_cookie(caller), self._cookie_header("-way", "", 0)]

    async def sign_out(self, caller: Caller | None, cookies: Mapping[str, str]) -> list[str]:
        """End the session and revoke its token. Return the cookies to set."""
        expired = [self._cookie_header("", "", 0)]
        if self.authority is not None:
            expired += await self.authority.sign_out(caller, cookies)
        return expired

    def _require_authority(self) -> SignInAuthority:
        if self.authority is None:
            raise Fault(Kind.NOT_FOUND, "Sign-in is disabled (auth.mode: none). Open the console directly.")
        return self.authority

    def _session_cookie(self, caller: Caller) -> str:
        now = time.time()
        expires = min(caller.expires or now + _MAX_SESSION_SECONDS, now + _MAX_SESSION_SECONDS)
        session = ConsoleSession(
            caller.tenant, caller.subject, caller.kind, sorted(caller.groups), sorted(caller.scopes),
            caller.credential, caller.client, caller.token, expires, caller.issued,
        )  # fmt: skip
        sealed = self._cookie_seal.seal(f"{self._purpose} session", msgspec.json.encode(session))
        return self._cookie_header("", sealed, expires - now)

    def _cookie_header(self, suffix: str, value: str, max_age: float) -> str:
        return f"{self._cookie}{suffix}={value}; Max-Age={max(0, int(max_age))}{self._cookie_attributes}"


def _authorization_error(error: str, requirements: str) -> Fault:
    """The fault for a redirect from the authority with an error instead of a code."""
    if error in _PROVIDER_ERRORS:
        message = f"The identity provider returned the error {error}."
        return Fault(Kind.UNAVAILABLE, _with_requirements(message, requirements))
    return missing_scope(requirements)


def missing_scope(requirements: str = "") -> Fault:
    message = f"Access to the console requires the scope {SCOPE}. Ask an administrator to grant it."
    return Fault(Kind.DENIED, _with_requirements(message, requirements))


def _with_requirements(message: str, requirements: str) -> str:
    return f"{message} {requirements}".rstrip()


_PROVIDER_ERRORS: Final = frozenset(
    (
        "invalid_request", "invalid_target", "unauthorized_client", "unsupported_response_type", "server_error",
        "temporarily_unavailable", "login_required", "interaction_required", "account_selection_required",
        "consent_required",
    )
)  # fmt: skip
"""OAuth error codes that do not concern the user's rights."""
