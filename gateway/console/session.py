"""Who looks: signed in by OAuth like any other client, and known afterwards by a sealed cookie.

The cookie lasts as long as the token it came from. Then the browser goes the same way again, which asks nobody
anything while the person is still signed in, and so brings the rights that hold now.
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
from gateway.contract.caller import ADMIN
from gateway.errors import Fault, Kind

SCOPE: Final = ADMIN
_HOUSE: Final = "/mcp"
"""What a token must be for: the console shows all that is served."""
_WAY_SECONDS: Final = 600.0
_LONGEST: Final = 8 * 3600.0
"""Seconds after which a person signs in anew, however long a token lasts."""

Form = Mapping[str, str]


class CookieSeal(Protocol):
    """Text that only we can have made, and only for that purpose."""

    def seal(self, purpose: str, payload: bytes) -> str: ...

    def opened(self, purpose: str, text: str) -> bytes | None: ...


@dataclass(frozen=True, slots=True)
class SignInAuthority:
    """Whom a browser is sent to: our own authorization server, or an identity provider."""

    issuer: str
    client_id: str
    scopes: str
    authorize: Callable[[], Awaitable[str]]
    """The address of its authorization endpoint. Raises `Fault` when it cannot be asked."""
    exchange: Callable[[Form], Awaitable[str | None]]
    """A code for an access token; None when it is refused."""
    leave: Callable[[Caller | None, Mapping[str, str]], Awaitable[list[str]]]
    """Ends the person's session there, and what was signed in here by it; the cookies to set for it."""
    needs: str = ""
    """What its tokens must be, for whoever has to set it up; said where they are not."""


class SignInRedirect(msgspec.Struct, frozen=True):
    """What the browser keeps while it is away at the authority."""

    state: str
    verifier: str
    back: str
    expires: float


class ConsoleSession(msgspec.Struct, frozen=True):
    """Who signed in, as the token said."""

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
    """Without an authority nobody is asked: then `anybody` is who looks."""

    def __init__(
        self,
        *,
        authority: SignInAuthority | None,
        anybody: Caller,
        sealing: CookieSeal,
        verify: Callable[[str], Awaitable[Caller | None]],
        good: Callable[[Caller], Awaitable[bool]],
        redirect_uri: str,
        resource: str,
    ) -> None:
        self.authority = authority
        self.anybody = anybody
        self._sealing = sealing
        self._verify = verify
        self._good = good
        self._redirect_uri = redirect_uri
        self._resource = resource
        secure = redirect_uri.startswith("https://")
        # A name that browsers only take from the whole host, over TLS; on loopback there is none.
        self._cookie = "__Host-gatehouse-console" if secure else "gatehouse-console"
        self._end = "; Path=/; HttpOnly; SameSite=Lax" + ("; Secure" if secure else "")

    async def who(self, cookies: Mapping[str, str]) -> Caller | None:
        """Who looks, if the cookie is ours, not over, and what it rests on still stands."""
        if self.authority is None:
            return self.anybody
        payload = self._sealing.opened("console session", cookies.get(self._cookie, ""))
        if payload is None:
            return None
        said = msgspec.json.decode(payload, type=ConsoleSession)
        if said.expires <= time.time():
            return None
        caller = Caller(
            said.tenant,
            said.subject,
            said.kind,
            frozenset(said.groups),
            frozenset(said.scopes),
            said.credential,
            said.expires,
            client=said.client,
            token=said.token,
            issued=said.issued,
        )
        return caller if await self._good(caller) else None

    async def begin(self, back: str, *, anew: bool = False) -> tuple[str, str]:
        """Where to send the browser, and the cookie it takes along; `anew`, so that somebody else may sign in.
        Raises `Fault`."""
        authority = self._known()
        way = SignInRedirect(secrets.token_urlsafe(24), secrets.token_urlsafe(48), back, time.time() + _WAY_SECONDS)
        digest = hashlib.sha256(way.verifier.encode()).digest()
        query = {
            "response_type": "code",
            "client_id": authority.client_id,
            "redirect_uri": self._redirect_uri,
            "state": way.state,
            "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
            "code_challenge_method": "S256",
            "resource": self._resource,
            "scope": authority.scopes,
        }
        if anew:
            # The session at an identity provider is not ours to end: it is asked to ask.
            query["prompt"] = "login"
        at = await authority.authorize()
        joint = "&" if "?" in at else "?"
        kept = self._sealing.seal("console way", msgspec.json.encode(way))
        return f"{at}{joint}{urlencode(query)}", self._set("-way", kept, _WAY_SECONDS)

    async def finish(self, query: Mapping[str, str], cookies: Mapping[str, str]) -> tuple[str, list[str]]:
        """Where the browser was going, and the cookies of somebody who signed in. Raises `Fault`."""
        authority = self._known()
        payload = self._sealing.opened("console way", cookies.get(f"{self._cookie}-way", ""))
        way = msgspec.json.decode(payload, type=SignInRedirect) if payload is not None else None
        given = query.get("state", "")
        if way is None or way.expires <= time.time() or not compare_digest(way.state.encode(), given.encode()):
            raise Fault(Kind.INVALID_INPUT, "This sign-in was begun elsewhere, or took too long. Begin again.")
        # RFC 9207: an answer that another authority could have sent is none.
        if query.get("iss", authority.issuer) != authority.issuer:
            raise Fault(Kind.INVALID_INPUT, "This answer comes from somebody else. Begin again.")
        if "code" not in query:
            raise _sent_back(query.get("error", ""), authority.needs)
        form = {
            "grant_type": "authorization_code",
            "code": query["code"],
            "redirect_uri": self._redirect_uri,
            "client_id": authority.client_id,
            "code_verifier": way.verifier,
            "resource": self._resource,
        }
        token = await authority.exchange(form)
        caller = await self._verify(token) if token is not None else None
        if caller is None:
            raise Fault(Kind.INVALID_INPUT, _said("The sign-in could not be completed. Begin again.", authority.needs))
        if SCOPE not in caller.scopes or not caller.token or caller.resource != _HOUSE:
            raise _lacking(authority.needs)
        return way.back, [self._remember(caller), self._set("-way", "", 0)]

    async def leave(self, caller: Caller | None, cookies: Mapping[str, str]) -> list[str]:
        """The cookies that end it; the token it came from is of no use any more either."""
        ended = [self._set("", "", 0)]
        if self.authority is not None:
            ended += await self.authority.leave(caller, cookies)
        return ended

    def _known(self) -> SignInAuthority:
        if self.authority is None:
            raise Fault(Kind.NOT_FOUND, "Nobody signs in here.")
        return self.authority

    def _remember(self, caller: Caller) -> str:
        now = time.time()
        ends = min(caller.expires or now + _LONGEST, now + _LONGEST)
        said = ConsoleSession(
            caller.tenant,
            caller.subject,
            caller.kind,
            sorted(caller.groups),
            sorted(caller.scopes),
            caller.credential,
            caller.client,
            caller.token,
            ends,
            caller.issued,
        )
        return self._set("", self._sealing.seal("console session", msgspec.json.encode(said)), ends - now)

    def _set(self, kind: str, value: str, lasts: float) -> str:
        return f"{self._cookie}{kind}={value}; Max-Age={max(0, int(lasts))}{self._end}"


def _sent_back(error: str, needs: str) -> Fault:
    """The authority sent the browser back without a code, and perhaps a word why."""
    if error in _TROUBLE:
        return Fault(Kind.UNAVAILABLE, _said(f"The identity provider answered {error}.", needs))
    return _lacking(needs)


def _lacking(needs: str) -> Fault:
    return Fault(Kind.DENIED, _said(f"You may not use the console: it needs the scope {SCOPE}.", needs))


def _said(what: str, needs: str) -> str:
    return f"{what} {needs}".rstrip()


_TROUBLE: Final = frozenset(
    (
        "invalid_request", "invalid_target", "unauthorized_client", "unsupported_response_type", "server_error",
        "temporarily_unavailable", "login_required", "interaction_required", "account_selection_required",
        "consent_required",
    )
)  # fmt: skip
"""Words of OAuth for what is not about the person's rights."""
