"""The client credentials grant: a token of the gateway's own for one server, kept until shortly before it expires."""

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

EARLY_SECONDS: Final = 30.0
"""A token is replaced so long before it expires, or after nine tenths of a shorter life."""
UNKNOWN_LIFE_SECONDS: Final = 300.0
_POST: Final = "client_secret_post"
_ASSERTION: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_decode: Final = msgspec.json.Decoder().decode


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCredentialsGrant:
    """What to ask for, and as whom. `repr` shows no secret."""

    client_id: str
    client_secret: Callable[[], str] | None = None
    assertion: Callable[[str], str] | None = None
    """Proves to an audience who asks (RFC 7523), where there is no secret."""
    token_url: str | None = None
    issuer: str | None = None
    """Its metadata tell the token endpoint, when that is not given."""
    scope: str | None = None
    resource: str | None = None
    method: Literal["basic", "post"] | None = None


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    until: float


class ClientCredentials:
    """`gateway.upstream.http.target.Credential`. However many calls want a token, one request asks for it."""

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
        self._kept: _Token | None = None
        self._endpoint: tuple[str, Literal["basic", "post"]] | None = None
        self._fetching = SingleFlight(self._fetch)

    async def token(self) -> str:
        kept = self._kept
        if kept is None or self._clock() >= kept.until:
            kept = await self._fetching()
        return kept.text

    def refused(self, token: str) -> None:
        # Another call may have replaced it meanwhile.
        if self._kept is not None and self._kept.text == token:
            self._kept = None

    async def close(self) -> None:
        await self._http.aclose()

    async def _fetch(self) -> _Token:
        try:
            url, method = self._endpoint or await self._find()
            answer = await self._ask(url, method)
        except Fault as fault:
            log.warning("%s: no token could be had: %s", self._name, fault.message)
            raise Fault(Kind.UNAVAILABLE, f"{self._name}: the gateway could not get a token for it.") from fault
        self._endpoint = (url, method)
        life = answer.get("expires_in")
        seconds = float(life) if isinstance(life, int | float) and life > 0 else UNKNOWN_LIFE_SECONDS
        until = self._clock() + max(seconds - EARLY_SECONDS, seconds * 0.9)
        self._kept = kept = _Token(answer["access_token"], until)
        return kept

    async def _ask(self, url: str, method: Literal["basic", "post"]) -> Json:
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
        given = await self._http.post(url, data=form, auth=basic or httpx.USE_CLIENT_DEFAULT, headers=headers)
        answer = _object(given)
        token, kind = answer.get("access_token"), answer.get("token_type", "bearer")
        if given.status_code != 200:
            # The error's name is a word of a closed list; its description could hold anything.
            word = answer.get("error")
            known = f" ({word})" if isinstance(word, str) and word in _ERRORS else ""
            raise Fault(Kind.UNAVAILABLE, f"The token endpoint answered with HTTP {given.status_code}{known}.")
        if not isinstance(token, str) or not _sendable(token) or str(kind).lower() != "bearer":
            raise Fault(Kind.UNAVAILABLE, "The token endpoint gave no bearer token.")
        return answer

    async def _find(self) -> tuple[str, Literal["basic", "post"]]:
        grant = self._grant
        if grant.token_url is not None:
            return grant.token_url, grant.method or "basic"
        assert grant.issuer is not None
        for url in _metadata_urls(grant.issuer):
            given = await self._http.get(url)
            metadata = _object(given)
            endpoint = metadata.get("token_endpoint")
            if given.status_code != 200 or not isinstance(endpoint, str):
                continue
            if str(metadata.get("issuer", "")).rstrip("/") != grant.issuer.rstrip("/"):
                raise Fault(Kind.UNAVAILABLE, "The metadata are another issuer's.")
            methods = cast(
                "list[Any]", metadata.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
            )
            only_post = _POST in methods and "client_secret_basic" not in methods
            return endpoint, grant.method or ("post" if only_post else "basic")
        raise Fault(Kind.UNAVAILABLE, "The issuer has no metadata that name a token endpoint.")


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
    """Where RFC 8414 and OpenID Connect put them, in the order the MCP specification asks for."""
    parts = urlsplit(issuer)
    path = parts.path.rstrip("/")
    yield urlunsplit((parts.scheme, parts.netloc, f"/.well-known/oauth-authorization-server{path}", "", ""))
    yield urlunsplit((parts.scheme, parts.netloc, f"/.well-known/openid-configuration{path}", "", ""))
    if path:
        yield urlunsplit((parts.scheme, parts.netloc, f"{path}/.well-known/openid-configuration", "", ""))


def _object(given: httpx.Response) -> Json:
    try:
        answer: Any = _decode(given.content)
    except msgspec.DecodeError:
        return {}
    return cast("Json", answer) if isinstance(answer, dict) else {}


def _sendable(token: str) -> bool:
    """As a header's value: a token with a line break in it would be a second header."""
    return token.isascii() and token.isprintable() and " " not in token and bool(token)
