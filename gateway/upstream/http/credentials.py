"""OAuth client credentials for one upstream server; the access token is cached until shortly before it expires."""

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal, cast
from urllib.parse import quote_plus, urlsplit, urlunsplit

import httpx
import msgspec

from gateway.contract import Json
from gateway.errors import Fault, Kind
from gateway.upstream.concurrency import SingleFlight

log = logging.getLogger("gatehouse.upstream")

RENEW_BEFORE_SECONDS: Final = 30.0
"""A token is renewed this long before it expires, or after 90 % of a shorter lifetime."""
DEFAULT_LIFETIME_SECONDS: Final = 300.0
_POST: Final = "client_secret_post"
_ASSERTION: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_decode: Final = msgspec.json.Decoder().decode


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCredentialsGrant:
    """Parameters of the token request. `repr` shows no secret."""

    client_id: str
    client_secret: Callable[[], str] | None = None
    assertion: Callable[[str], str] | None = None
    """Creates a client assertion (RFC 7523) for an audience, if the client has no secret."""
    token_url: str | None = None
    issuer: str | None = None
    """Its metadata name the token endpoint if `token_url` is not set."""
    scope: str | None = None
    resource: str | None = None
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
        self._endpoint: tuple[str, Literal["basic", "post"]] | None = None
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
        try:
            url, method = self._endpoint or await self._discover_endpoint()
            payload = await self._request_token(url, method)
        except Fault as fault:
            log.warning("upstream %s: token request failed; its calls fail: %s", self._name, fault.message)
            raise Fault(Kind.UNAVAILABLE, f"The gateway could not get a token for {self._name}.") from fault
        self._endpoint = (url, method)
        lifetime = payload.get("expires_in")
        seconds = float(lifetime) if isinstance(lifetime, int | float) and lifetime > 0 else DEFAULT_LIFETIME_SECONDS
        renew_at = self._clock() + max(seconds - RENEW_BEFORE_SECONDS, seconds * 0.9)
        self._cached = cached = _Token(payload["access_token"], renew_at)
        return cached

    async def _request_token(self, url: str, method: Literal["basic", "post"]) -> Json:
        grant = self._grant
        form = {"grant_type": "client_credentials"}
        if grant.scope is not None:
            form["scope"] = grant.scope
        if grant.resource is not None:
            form["resource"] = grant.resource
        basic: tuple[str, str] | None = None
        if grant.assertion is not None:
            form |= {"client_id": grant.client_id, "client_assertion_type": _ASSERTION}
            form["client_assertion"] = grant.assertion(grant.issuer or url)
        elif grant.client_secret is not None and method == "post":
            form |= {"client_id": grant.client_id, "client_secret": grant.client_secret()}
        elif grant.client_secret is not None:
            basic = (quote_plus(grant.client_id), quote_plus(grant.client_secret()))  # RFC 6749 §2.3.1
        headers = {"accept": "application/json"}
        response = await self._http.post(url, data=form, auth=basic or httpx.USE_CLIENT_DEFAULT, headers=headers)
        payload = _object(response)
        token, token_type = payload.get("access_token"), payload.get("token_type", "bearer")
        if response.status_code != 200:
            # Only error codes of the closed list are shown: the description may contain anything.
            error = payload.get("error")
            detail = f" ({error})" if isinstance(error, str) and error in _ERRORS else ""
            raise Fault(Kind.UNAVAILABLE, f"The token endpoint responded with HTTP {response.status_code}{detail}.")
        if not isinstance(token, str) or not _is_sendable(token) or str(token_type).lower() != "bearer":
            raise Fault(Kind.UNAVAILABLE, "The token endpoint returned no bearer token.")
        return payload

    async def _discover_endpoint(self) -> tuple[str, Literal["basic", "post"]]:
        grant = self._grant
        if grant.token_url is not None:
            return grant.token_url, grant.method or "basic"
        assert grant.issuer is not None
        for url in _metadata_urls(grant.issuer):
            response = await self._http.get(url)
            metadata = _object(response)
            endpoint = metadata.get("token_endpoint")
            if response.status_code != 200 or not isinstance(endpoint, str):
                continue
            if str(metadata.get("issuer", "")).rstrip("/") != grant.issuer.rstrip("/"):
                raise Fault(Kind.UNAVAILABLE, "The metadata name another issuer.")
            methods = cast(
                "list[Any]", metadata.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
            )
            only_post = _POST in methods and "client_secret_basic" not in methods
            return endpoint, grant.method or ("post" if only_post else "basic")
        raise Fault(Kind.UNAVAILABLE, "The issuer's metadata name no token endpoint.")


_ERRORS: Final = frozenset(
    {
        "invalid_request",
        "invalid_client",
        "invalid_grant",
        "unauthorized_client",
        "unsupported_grant_type",
        "invalid_scope",
        "invalid_target",
    }
)


def _metadata_urls(issuer: str) -> Iterator[str]:
    """The metadata URLs of RFC 8414 and OpenID Connect, in the order of the MCP specification."""
    parts = urlsplit(issuer)
    path = parts.path.rstrip("/")
    yield urlunsplit((parts.scheme, parts.netloc, f"/.well-known/oauth-authorization-server{path}", "", ""))
    yield urlunsplit((parts.scheme, parts.netloc, f"/.well-known/openid-configuration{path}", "", ""))
    if path:
        yield urlunsplit((parts.scheme, parts.netloc, f"{path}/.well-known/openid-configuration", "", ""))


def _object(response: httpx.Response) -> Json:
    try:
        payload: Any = _decode(response.content)
    except msgspec.DecodeError:
        return {}
    return cast("Json", payload) if isinstance(payload, dict) else {}


def _is_sendable(token: str) -> bool:
    """Whether the token is a valid header value: a line break would inject a header."""
    return token.isascii() and token.isprintable() and " " not in token and bool(token)
