"""The gateway's own OAuth token for one upstream server; it is cached until shortly before it expires."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

import httpx

from gateway.errors import Fault, Kind
from gateway.outbound.oauth import (
    ClientAuthentication,
    Method,
    Token,
    TokenRefused,
    fetch_metadata,
    request_token,
    secret_method,
)
from gateway.upstream.concurrency import SingleFlight

log = logging.getLogger("gatehouse.upstream")

RENEW_BEFORE_SECONDS: Final = 30.0
"""A token is renewed this long before it expires, or after 90 % of a shorter lifetime."""
DEFAULT_LIFETIME_SECONDS: Final = 300.0
REFUSED_SECONDS: Final = 30.0
JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCredentialsGrant:
    """Parameters of the token request. `repr` shows no secret."""

    client_id: str = ""
    client_secret: Callable[[], str] | None = None
    assertion: Callable[[str], str] | None = None
    """Creates a client assertion (RFC 7523) for an audience, if the client has no secret."""
    token_url: str | None = None
    issuer: str | None = None
    """Its metadata name the token endpoint if `token_url` is not set."""
    scope: str | None = None
    resource: str | None = None
    jwt_bearer: Callable[[], str] | None = None
    """Returns the workload's identity token, which is the grant itself (RFC 7523 section 2.1)."""
    method: Literal["basic", "post"] | None = None


@dataclass(frozen=True, slots=True)
class _Token:
    value: str
    renew_at: float


class ClientCredentials:
    """`gateway.upstream.http.target.UpstreamCredential`. Concurrent callers share one token request."""

    def __init__(
        self,
        name: str,
        grant: ClientCredentialsGrant,
        http: httpx.AsyncClient,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = name
        self._grant = grant
        self._http = http
        self._clock = clock
        self._cached: _Token | None = None
        self._endpoint: tuple[str, Method] | None = None
        self._refused_until = 0.0
        """A refused identity token is not sent again before this time: a repetition would be refused, too."""
        self._fetch_once = SingleFlight(self._fetch)

    async def token(self) -> str:
        cached = self._cached
        if cached is None or self._clock() >= cached.renew_at:
            cached = await self._fetch_once()
        return cached.value

    def invalidate(self, token: str) -> None:
        # Another call may have replaced the token already.
        if self._cached is not None and self._cached.value == token:
            self._cached = None

    async def close(self) -> None:
        await self._http.aclose()

    async def _fetch(self) -> _Token:
        if self._clock() < self._refused_until:
            raise Fault(Kind.UNAVAILABLE, f"The token endpoint refused a token for {self._name}.", retryable=False)
        try:
            url, method = self._endpoint or await self._discover_endpoint()
            token = await self._request_token(url, method)
        except Fault as fault:
            if self._grant.jwt_bearer is not None and isinstance(fault, TokenRefused) and fault.is_final:
                self._refused_until = self._clock() + REFUSED_SECONDS
            log.warning("upstream %s: token request failed; its calls fail: %s", self._name, fault.message)
            raise Fault(Kind.UNAVAILABLE, f"The gateway could not get a token for {self._name}.") from fault
        self._endpoint = (url, method)
        seconds = token.lifetime or DEFAULT_LIFETIME_SECONDS
        renew_at = self._clock() + max(seconds - RENEW_BEFORE_SECONDS, seconds * 0.9)
        self._cached = cached = _Token(token.access, renew_at)
        return cached

    async def _request_token(self, url: str, method: Method) -> Token:
        grant = self._grant
        form = {"grant_type": "client_credentials"}
        client: ClientAuthentication | None = None
        if grant.client_id:
            client = ClientAuthentication(
                client_id=grant.client_id, secret=grant.client_secret, assertion=grant.assertion, method=method
            )
        if grant.jwt_bearer is not None:
            form = {"grant_type": JWT_BEARER, "assertion": grant.jwt_bearer()}
        if grant.scope is not None:
            form["scope"] = grant.scope
        if grant.resource is not None:
            form["resource"] = grant.resource
        return await request_token(self._http, url, form, client, audience=grant.issuer or url)

    async def _discover_endpoint(self) -> tuple[str, Method]:
        grant = self._grant
        if grant.token_url is not None:
            return grant.token_url, grant.method or "basic"
        assert grant.issuer is not None
        metadata = await fetch_metadata(self._http, grant.issuer)
        return metadata.token_endpoint, grant.method or secret_method(metadata.methods)
