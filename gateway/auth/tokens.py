"""Access tokens: from a signed JWT, or an opaque one that its issuer vouches for, to a `Caller`."""

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol, cast

from gateway.auth.jwt import InvalidToken, Key, UnverifiedToken, peek, verified
from gateway.auth.revocations import Revocations
from gateway.contract import Caller, Json
from gateway.errors import Fault, Kind

LEEWAY: Final = 30.0
"""Seconds by which clocks may differ."""

_IMPLIED: Final = {"mcp:call:write": ("mcp:call",)}


class TokenIssuer(Protocol):
    """Somebody whose tokens are accepted."""

    @property
    def name(self) -> str:
        """Its identifier, compared byte for byte."""
        ...

    @property
    def algorithms(self) -> frozenset[str]: ...

    @property
    def types(self) -> frozenset[str]:
        """What a token's `typ` may be, in lower case, without `application/`."""
        ...

    async def key(self, kid: str | None) -> Key | None:
        """Its key of that id: a lookup, whatever the id says."""
        ...

    def resource(self, audiences: frozenset[str]) -> str | None:
        """The endpoint that these audiences mean; None when none of them is ours."""
        ...

    def caller(self, claims: Json, resource: str) -> Caller:
        """Who the verified claims speak of. Raises `BadToken`."""
        ...


class AccessTokens:
    """Verifies the tokens of these issuers; `opaque` is asked for those that are no JWT."""

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
        """Whose token it is; None when it is none, or not good here.

        Raises `Fault(UNAUTHENTICATED)` for one that was good and has expired, and `Fault(UNAVAILABLE)` when that
        cannot be found out now.
        """
        try:
            token = peek(text)
        except InvalidToken:
            caller = await self._opaque(text) if self._opaque is not None else None
        else:
            try:
                caller = await self._signed(token)
            except InvalidToken:
                return None
        return None if caller is None or self._revocations.holds(caller) else caller

    async def _signed(self, token: UnverifiedToken) -> Caller:
        issuer = self._issuers.get(token.issuer)
        if issuer is None or token.typ not in issuer.types:
            raise InvalidToken
        key = await issuer.key(token.kid)
        if key is None:
            raise InvalidToken
        claims = verified(token, key, issuer.algorithms)
        if claims.get("iss") != issuer.name:
            raise InvalidToken
        resource = issuer.resource(audiences(claims))
        if resource is None:
            raise InvalidToken
        check_times(claims, self._clock())
        return issuer.caller(claims, resource)


def audiences(claims: Json) -> frozenset[str]:
    given: Any = claims.get("aud")
    if isinstance(given, str):
        return frozenset((given,))
    if not isinstance(given, list):
        raise InvalidToken
    values = cast("list[Any]", given)
    if not all(isinstance(each, str) for each in values):
        raise InvalidToken
    return frozenset(cast("list[str]", values))


def check_times(claims: Json, now: float) -> None:
    """Raises `BadToken` before its time, and `Fault(UNAUTHENTICATED)` after it."""
    if moment(claims, "nbf", 0.0) > now + LEEWAY or moment(claims, "iat", 0.0) > now + LEEWAY:
        raise InvalidToken
    if moment(claims, "exp") <= now - LEEWAY:
        raise Fault(Kind.UNAUTHENTICATED, "The token has expired.", details={"reason": "expired"})


def moment(claims: Json, name: str, default: float | None = None) -> float:
    value: Any = claims.get(name, default)
    # A boolean is an int, and no time.
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
        raise InvalidToken
    return float(value)


def word(claims: Json, name: str) -> str:
    """A claim that must be a short text without control characters."""
    value: Any = claims.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= 256 or not value.isprintable():
        raise InvalidToken
    return value


def scopes_of(text: str) -> frozenset[str]:
    """The scopes, with those that a wider one holds already."""
    given = text.split()
    return frozenset((*given, *(each for scope in given for each in _IMPLIED.get(scope, ()))))


class ProtectedResources:
    """The addresses that tokens are made for: `/mcp` and each endpoint below it."""

    def __init__(self, public_url: str) -> None:
        self._public_url = public_url

    def url(self, endpoint: str = "/mcp") -> str:
        return self._public_url + endpoint

    def endpoint(self, url: str) -> str | None:
        """The endpoint of exactly this address; None when it is none of ours."""
        path = url.removeprefix(self._public_url) if url.startswith(self._public_url) else ""
        if path == "/mcp" or (path.startswith("/mcp/") and path.count("/") == 2 and path != "/mcp/"):
            return path
        return None

    def widest(self, urls: frozenset[str]) -> str | None:
        """The endpoint that the most can be reached with, of those that these addresses name."""
        found = sorted(filter(None, map(self.endpoint, urls)), key=len)
        return found[0] if found else None
