"""Verification of opaque tokens by introspection at their issuer (RFC 7662)."""

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, cast

import httpx

from gateway.auth.external_issuer import ExternalIssuer
from gateway.auth.jwt import InvalidToken
from gateway.auth.tokens import check_lifetime, parse_audiences
from gateway.contract import Caller, Json
from gateway.errors import Fault, Kind

_INVALID_TTL: Final = 5.0
_MAX_CACHED: Final = 10_000
_MAX_CHARS: Final = 4096


class TokenIntrospection:
    """Introspects tokens. Concurrent requests for one token share a query.

    Invalid tokens are cached for five seconds. Valid ones are not cached here; the caller caches them.
    """

    def __init__(
        self,
        http: httpx.AsyncClient,
        url: str,
        client: tuple[str, str],
        issuer: ExternalIssuer,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._http = http
        self._url = url
        self._client = client
        self._issuer = issuer
        self._clock = clock
        self._invalid: OrderedDict[bytes, float] = OrderedDict()
        self._in_flight: dict[bytes, asyncio.Task[Caller | None]] = {}

    async def __call__(self, text: str) -> Caller | None:
        """Return the caller; None if the token is invalid. Raises `Fault(UNAVAILABLE)` if the issuer is unreachable."""
        if not 0 < len(text) <= _MAX_CHARS or not text.isprintable():
            return None
        digest = hashlib.sha256(text.encode()).digest()
        if self._invalid.get(digest, 0.0) > self._clock():
            return None
        task = self._in_flight.get(digest)
        if task is None:
            task = self._in_flight[digest] = asyncio.create_task(self._introspect(text))
            task.add_done_callback(lambda _: self._in_flight.pop(digest, None))
        caller = await asyncio.shield(task)
        if caller is None:
            self._invalid[digest] = self._clock() + _INVALID_TTL
            self._invalid.move_to_end(digest)
            if len(self._invalid) > _MAX_CACHED:
                self._invalid.popitem(last=False)
        return caller

    async def _introspect(self, text: str) -> Caller | None:
        try:
            answer = await self._http.post(
                self._url, data={"token": text, "token_type_hint": "access_token"}, auth=self._client
            )
            claims: Any = answer.json() if answer.status_code == 200 else None
        except (Fault, httpx.HTTPError, ValueError, RecursionError) as exc:
            raise _unavailable() from exc
        if not isinstance(claims, dict):
            raise _unavailable()
        try:
            return self._caller(cast("Json", claims))
        except InvalidToken:
            return None

    def _caller(self, claims: Json) -> Caller | None:
        if claims.get("active") is not True or claims.get("iss", self._issuer.name) != self._issuer.name:
            return None
        if str(claims.get("token_type", "Bearer")).lower() not in ("bearer", "access_token"):
            return None
        resource = self._issuer.resource(parse_audiences(claims))
        if resource is None:
            return None
        check_lifetime(claims, self._clock())
        return self._issuer.caller(claims, resource)


def _unavailable() -> Fault:
    return Fault(Kind.UNAVAILABLE, "The identity provider is unreachable. Try again later.", retry_after=5)
