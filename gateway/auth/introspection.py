"""Opaque tokens: their issuer is asked (RFC 7662). Whoever cannot be asked vouches for nobody."""

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, cast

import httpx

from gateway.auth.external_issuer import ExternalIssuer
from gateway.auth.jwt import InvalidToken
from gateway.auth.tokens import audiences, check_times
from gateway.contract import Caller, Json
from gateway.errors import Fault, Kind

_BAD_FOR: Final = 5.0
_KEPT: Final = 10_000
_LONGEST: Final = 4096


class TokenIntrospection:
    """One question at a time for a token; a bad one is remembered for moments, a good one by whoever asked."""

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
        self._bad: OrderedDict[bytes, float] = OrderedDict()
        self._asking: dict[bytes, asyncio.Task[Caller | None]] = {}

    async def __call__(self, text: str) -> Caller | None:
        """Raises `Fault(UNAVAILABLE)` when its issuer cannot be asked."""
        if not 0 < len(text) <= _LONGEST or not text.isprintable():
            return None
        digest = hashlib.sha256(text.encode()).digest()
        if self._bad.get(digest, 0.0) > self._clock():
            return None
        task = self._asking.get(digest)
        if task is None:
            task = self._asking[digest] = asyncio.create_task(self._asked(text))
            task.add_done_callback(lambda _: self._asking.pop(digest, None))
        caller = await asyncio.shield(task)
        if caller is None:
            self._bad[digest] = self._clock() + _BAD_FOR
            self._bad.move_to_end(digest)
            if len(self._bad) > _KEPT:
                self._bad.popitem(last=False)
        return caller

    async def _asked(self, text: str) -> Caller | None:
        try:
            answer = await self._http.post(
                self._url, data={"token": text, "token_type_hint": "access_token"}, auth=self._client
            )
            said: Any = answer.json() if answer.status_code == 200 else None
        except (Fault, httpx.HTTPError, ValueError, RecursionError) as exc:
            raise _away() from exc
        if not isinstance(said, dict):
            raise _away()
        try:
            return self._caller(cast("Json", said))
        except InvalidToken:
            return None

    def _caller(self, said: Json) -> Caller | None:
        if said.get("active") is not True or said.get("iss", self._issuer.name) != self._issuer.name:
            return None
        if str(said.get("token_type", "Bearer")).lower() not in ("bearer", "access_token"):
            return None
        resource = self._issuer.resource(audiences(said))
        if resource is None:
            return None
        check_times(said, self._clock())
        return self._issuer.caller(said, resource)


def _away() -> Fault:
    return Fault(Kind.UNAVAILABLE, "The identity provider cannot be asked now.", retry_after=5)
