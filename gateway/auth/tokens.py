"""Verification of access tokens: from a signed JWT or an opaque token to a `Caller`."""

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol, cast

from gateway.auth.jwt import InvalidToken, Key, UnverifiedToken, parse_unverified, verify_signature
from gateway.auth.revocations import Revocations
from gateway.contract import Caller, Json
from gateway.errors import Fault, Kind

LEEWAY: Final = 30.0
"""Accepted clock difference in seconds."""

_IMPLIED: Final = {"mcp:call:write": ("mcp:call",)}


class TokenIssuer(Protocol):
    """An issuer whose tokens the gateway accepts."""

    @property
    def name(self) -> str:
        """Issuer identifier; the `iss` claim must equal it exactly."""
        ...

    @property
    def algorithms(self) -> frozenset[str]: ...

    @property
    def types(self) -> frozenset[str]:
        """Accepted values of the `typ` header, in lower case, without `application/`."""
        ...

    async def key(self, kid: str | None) -> Key | None:
        """Return the key with this id. The id is only a lookup key, never a path or URL."""
        ...

    def resource(self, audiences: frozenset[str]) -> str | None:
        """Return the endpoint of these audiences; None if none of them is this gateway."""
        ...

    def caller(self, claims: Json, resource: str) -> Caller:
        """Return the caller of verified claims. Raises `InvalidToken`."""
        ...


class AccessTokens:
    """Verifies the tokens of `issuers`; `opaque` verifies the ones that are not JWTs."""

    def __init__(
        self,
        issuers: Mapping[str, TokenIssuer],
        revocations: Revocations,
        opaque: Callable[[str], Awaitable[Caller | None]] | None = None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._issuers = issuers
        self._revocations = revocations
        self._opaque = opaque
        self._clock = clock

    async def verify(self, text: str) -> Caller | None:
        """Return the caller of a token; None if it is malformed, not accepted here or revoked.

        Raises `Fault(UNAUTHENTICATED)` if an otherwise valid token has expired, and `Fault(UNAVAILABLE)` if it cannot
        be verified at the moment.
        """
        try:
            token = parse_unverified(text)
        except InvalidToken:
            caller = await self._opaque(text) if self._opaque is not None else None
        else:
            try:
                caller = await self._verify_signed(token)
            except InvalidToken:
                return None
        return None if caller is None or self._revocations.is_revoked(caller) else caller

    async def _verify_signed(self, token: UnverifiedToken) -> Caller:
        issuer = self._issuers.get(token.issuer)
        if issuer is None or token.typ not in issuer.types:
            raise InvalidToken
        key = await issuer.key(token.kid)
        if key is None:
            raise InvalidToken
        claims = verify_signature(token, key, issuer.algorithms)
        if claims.get("iss") != issuer.name:
            raise InvalidToken
        resource = issuer.resource(parse_audiences(claims))
        if resource is None:
            raise InvalidToken
        check_lifetime(claims, self._clock())
        return issuer.caller(claims, resource)


def parse_audiences(claims: Json) -> frozenset[str]:
    audience: Any = claims.get("aud")
    if isinstance(audience, str):
        return frozenset((audience,))
    if not isinstance(audience, list):
        raise InvalidToken
    values = cast("list[Any]", audience)
    if not all(isinstance(each, str) for each in values):
        raise InvalidToken
    return frozenset(cast("list[str]", values))


def check_lifetime(claims: Json, now: float) -> None:
    """Raise `InvalidToken` if the token is not valid yet, `Fault(UNAUTHENTICATED)` if it has expired."""
    if time_claim(claims, "nbf", 0.0) > now + LEEWAY or time_claim(claims, "iat", 0.0) > now + LEEWAY:
        raise InvalidToken
    if time_claim(claims, "exp") <= now - LEEWAY:
        raise Fault(Kind.UNAUTHENTICATED, "The token has expired.", details={"reason": "expired"})


def time_claim(claims: Json, name: str, default: float | None = None) -> float:
    value: Any = claims.get(name, default)
    # In Python, a boolean is an int.
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
        raise InvalidToken
    return float(value)


def text_claim(claims: Json, name: str) -> str:
    """Return a claim that must be 1 to 256 printable characters. Raises `InvalidToken`."""
    value: Any = claims.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= 256 or not value.isprintable():
        raise InvalidToken
    return value


def parse_scopes(text: str) -> frozenset[str]:
    """Split a scope string and add the scopes that a wider scope implies."""
    scopes = text.split()
    return frozenset((*scopes, *(implied for scope in scopes for implied in _IMPLIED.get(scope, ()))))


class ProtectedResources:
    """URLs of the protected resources: `/mcp` and each endpoint below it."""

    def __init__(self, public_url: str) -> None:
        self._public_url = public_url

    def url(self, endpoint: str = "/mcp") -> str:
        return self._public_url + endpoint

    def endpoint(self, url: str) -> str | None:
        """Return the endpoint with exactly this URL; None if there is none."""
        path = url.removeprefix(self._public_url) if url.startswith(self._public_url) else ""
        if path == "/mcp" or (path.startswith("/mcp/") and path.count("/") == 2 and path != "/mcp/"):
            return path
        return None

    def widest_endpoint(self, urls: frozenset[str]) -> str | None:
        """Return the endpoint that gives the widest access among these URLs."""
        found = sorted(filter(None, map(self.endpoint, urls)), key=len)
        return found[0] if found else None
