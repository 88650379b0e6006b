"""Credentials for a caller without a person at a browser: token exchange (RFC 8693) and identity assertions (ID-JAG).

Tokens are cached per principal until shortly before they expire. The caller's own token goes only to the configured
token endpoint, never to the server.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

import httpx

from gateway.accounts.credentials import EARLY_SECONDS, EARLY_SHARE, StaticCredential
from gateway.contract import Caller
from gateway.errors import Fault, Kind
from gateway.outbound.oauth import ClientAuthentication, Token, TokenRefused, fetch_metadata, request_token

TOKEN_EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"  # noqa: S105
JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
ACCESS_TOKEN: Final = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105
ID_TOKEN: Final = "urn:ietf:params:oauth:token-type:id_token"  # noqa: S105
ID_JAG: Final = "urn:ietf:params:oauth:token-type:id-jag"
DEFAULT_LIFETIME: Final = 300.0
MAX_CACHED: Final = 10_000

SubjectToken = Callable[[str], Awaitable[str | None]]
"""Returns the token that stands for a principal; None if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenExchange:
    """Parameters of a token exchange."""

    client: ClientAuthentication | None
    token_url: str | None = None
    issuer: str | None = None
    subject_type: str = ACCESS_TOKEN
    requested_type: str | None = ACCESS_TOKEN
    audience: str | None = None
    resource: str | None = None
    scope: str | None = None
    actor: Callable[[], str] | None = field(default=None, repr=False)
    """Returns the gateway's own token, which names it as the actor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AssertionGrant:
    """The second step of ID-JAG: the assertion is redeemed at the server's own authorization server."""

    client: ClientAuthentication
    issuer: str
    resource: str
    scope: str | None = None


class ExchangedTokens:
    """`AccountCredential` and `AccountAccess` of `gateway.upstream.account_access`, without accounts to connect."""

    note = ""

    def __init__(
        self,
        backend: str,
        http: httpx.AsyncClient,
        subject: SubjectToken,
        exchange: TokenExchange,
        grant: AssertionGrant | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._backend = backend
        self._http = http
        self._subject = subject
        self._exchange = exchange
        self._grant = grant
        self._clock = clock
        self._cache: dict[str, StaticCredential] = {}
        self._flights: dict[str, asyncio.Task[StaticCredential]] = {}
        self._endpoints: dict[str, str] = {}

    # ---- AccountCredential ----

    def cached(self, owner: str) -> StaticCredential | None:
        credential = self._cache.get(owner)
        return credential if credential is not None and self._clock() < credential.renew_at else None

    async def obtain(self, owner: str) -> StaticCredential:
        flight = self._flights.get(owner)
        if flight is None:
            flight = self._flights[owner] = asyncio.create_task(self._fetch(owner))
            flight.add_done_callback(
                lambda done: (self._flights.pop(owner, None), done.cancelled() or done.exception())
            )
        return await asyncio.shield(flight)

    async def replace(self, owner: str, rejected: StaticCredential, headers: Mapping[str, str]) -> StaticCredential:
        if self._cache.get(owner) is rejected:
            del self._cache[owner]
        return await self.obtain(owner)

    async def give_up(self, owner: str, rejected: StaticCredential) -> NoReturn:
        self._cache.pop(owner, None)
        raise Fault(Kind.UNAVAILABLE, f"{self._backend} rejected the exchanged token.", retryable=False)

    async def _fetch(self, owner: str) -> StaticCredential:
        subject = await self._subject(owner)
        if subject is None:
            raise Fault(
                Kind.DENIED,
                f"{self._backend} needs a token of your identity provider, and this credential is none.",
                suggested_fix="Call with an access token instead of an API key.",
            )
        try:
            token = await self._exchange_token(subject)
            if self._grant is not None:
                token = await self._redeem(self._grant, token.access)
        except TokenRefused as refused:
            message = f"The identity provider refused a token for {self._backend}"
            detail = f" ({refused.error})" if refused.error else ""
            raise Fault(Kind.DENIED, f"{message}{detail}.", retryable=False) from refused
        lifetime = token.lifetime or DEFAULT_LIFETIME
        renew_at = self._clock() + lifetime - min(EARLY_SECONDS, lifetime * EARLY_SHARE)
        lines = f"authorization: Bearer {token.access}\r\n".encode("latin-1")
        while len(self._cache) >= MAX_CACHED:
            del self._cache[next(iter(self._cache))]
        credential = self._cache[owner] = StaticCredential(token.access, lines, renew_at)
        return credential

    async def _exchange_token(self, subject: str) -> Token:
        exchange = self._exchange
        form = {"grant_type": TOKEN_EXCHANGE, "subject_token": subject, "subject_token_type": exchange.subject_type}
        optional = {
            "requested_token_type": exchange.requested_type,
            "audience": exchange.audience,
            "resource": exchange.resource,
            "scope": exchange.scope,
        }
        form |= {name: value for name, value in optional.items() if value}
        if exchange.actor is not None:
            form |= {"actor_token": exchange.actor(), "actor_token_type": ACCESS_TOKEN}
        url = exchange.token_url or await self._endpoint(exchange.issuer or "")
        token = await request_token(self._http, url, form, exchange.client, audience=exchange.issuer or url)
        if self._grant is not None and token.issued_type != ID_JAG:
            raise Fault(Kind.UNAVAILABLE, "The identity provider returned no identity assertion.", retryable=False)
        return token

    async def _redeem(self, grant: AssertionGrant, assertion: str) -> Token:
        form = {"grant_type": JWT_BEARER, "assertion": assertion, "resource": grant.resource}
        if grant.scope:
            form["scope"] = grant.scope
        url = await self._endpoint(grant.issuer)
        return await request_token(self._http, url, form, grant.client, audience=grant.issuer)

    async def _endpoint(self, issuer: str) -> str:
        if issuer not in self._endpoints:
            self._endpoints[issuer] = (await fetch_metadata(self._http, issuer)).token_endpoint
        return self._endpoints[issuer]

    # ---- AccountAccess ----

    @property
    def credential(self) -> "ExchangedTokens":
        return self

    async def is_connected(self, owner: str) -> bool:
        return await self._subject(owner) is not None

    def is_known(self, owner: str) -> bool:
        return owner in self._cache

    def link(self, caller: Caller, required: Any) -> str:
        return ""

    async def wait_until_connected(self, owner: str, seconds: float, scopes: tuple[str, ...]) -> bool:
        return False

    def on_change(self, listener: Callable[[str], None]) -> None:
        """Nothing is connected here, so nothing changes."""
