"""An identity provider's public keys: found by its own discovery document, kept, and kept on when it is away."""

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final, cast
from urllib.parse import urlsplit

import httpx
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, RSAKey

from gateway.auth.jwt import Key
from gateway.contract import Json
from gateway.errors import Fault, Kind

MAX_BYTES: Final = 64 * 1024
_FRESH: Final = 600.0
_REFETCH: Final = 30.0
"""Seconds between two looks for a key that is not there."""
_STALE: Final = 86400.0
_MOST_KEYS: Final = 50
_SHORTEST_RSA: Final = 2048


class IssuerKeys:
    """The keys of one issuer, by id. One fetch at a time, whoever waits for it."""

    def __init__(self, http: httpx.AsyncClient, issuer: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._http = http
        self._issuer = issuer
        self._clock = clock
        self._keys: dict[str, Key] = {}
        self._fetched: float | None = None
        self._looked: float | None = None
        self._fetching: asyncio.Task[None] | None = None

    async def get(self, kid: str | None) -> Key | None:
        """Raises `Fault(UNAVAILABLE)` when they were never read, or not for a day."""
        now = self._clock()
        known = self._find(kid)
        if self._fetched is None or now >= self._fetched + _FRESH or (known is None and self._may_look(now)):
            await self._refresh()
            known = self._find(kid)
        return known

    async def count(self) -> int:
        """How many can be used. Raises `Fault(UNAVAILABLE)` when they cannot be read."""
        await self._refresh()
        return len(self._keys)

    def _find(self, kid: str | None) -> Key | None:
        if kid is None:
            return next(iter(self._keys.values())) if len(self._keys) == 1 else None
        return self._keys.get(kid)

    def _may_look(self, now: float) -> bool:
        return self._looked is None or now >= self._looked + _REFETCH

    async def _refresh(self) -> None:
        if self._fetching is None:
            self._looked = self._clock()
            self._fetching = asyncio.create_task(self._fetch())
            self._fetching.add_done_callback(self._over)
        try:
            await asyncio.shield(self._fetching)
        except (Fault, httpx.HTTPError, _BadDocument) as exc:
            stale_until = None if self._fetched is None else self._fetched + _STALE
            if stale_until is None or self._clock() >= stale_until:
                raise Fault(Kind.UNAVAILABLE, "The identity provider cannot be asked now.", retry_after=5) from exc
            # Away, but not for long: what it said last still holds, and it is asked again before long.
            self._fetched = max(self._fetched or 0.0, self._clock() - _FRESH + _REFETCH)

    def _over(self, task: asyncio.Task[None]) -> None:
        self._fetching = None
        if not task.cancelled():
            task.exception()  # told to whoever waited

    async def _fetch(self) -> None:
        document = await discover(self._http, self._issuer)
        where: Any = document.get("jwks_uri")
        if not isinstance(where, str):
            raise _BadDocument
        self._keys = _usable(await _json(self._http, where))
        self._fetched = self._clock()


async def discover(http: httpx.AsyncClient, issuer: str) -> Json:
    """The issuer's own document; one that names another issuer is none. Raises `_BadDocument`, `Fault`."""
    last: Exception = _BadDocument()
    for where in wells(issuer):
        try:
            document = await _json(http, where)
        except (Fault, httpx.HTTPError, _BadDocument) as exc:
            last = exc
            continue
        if document.get("issuer") == issuer:
            return document
    raise last


def wells(issuer: str) -> tuple[str, str]:
    """Where an issuer's document may lie."""
    parts = urlsplit(issuer)
    path = parts.path.rstrip("/")
    return (
        f"{parts.scheme}://{parts.netloc}/.well-known/oauth-authorization-server{path}",
        f"{issuer.rstrip('/')}/.well-known/openid-configuration",
    )


class _BadDocument(Exception):
    """Not what such a document must be."""


async def _json(http: httpx.AsyncClient, url: str) -> Json:
    answer = await http.get(url, headers={"Accept": "application/json"})
    if answer.status_code != 200:
        raise _BadDocument
    try:
        body: Any = answer.json()
    except (ValueError, RecursionError) as exc:
        raise _BadDocument from exc
    if not isinstance(body, dict):
        raise _BadDocument
    return cast("Json", body)


def _usable(document: Json) -> dict[str, Key]:
    """The signing keys that are strong enough, by id; an id that stands for two keys stands for none."""
    given: Any = document.get("keys")
    listed = cast("list[Any]", given) if isinstance(given, list) else []
    if not listed or len(listed) > _MOST_KEYS:
        raise _BadDocument
    found: dict[str, Key | None] = {}
    for entry in listed:
        key = _imported(entry)
        if key is not None:
            kid = str(cast("Json", entry).get("kid", ""))
            found[kid] = None if kid in found else key
    return {kid: key for kid, key in found.items() if key is not None}


def _imported(entry: Any) -> Key | None:
    if not isinstance(entry, dict):
        return None
    said = cast("Json", entry)
    if said.get("use", "sig") != "sig" or "d" in said:
        return None
    try:
        if said.get("kty") == "EC" and said.get("crv") == "P-256":
            return ECKey.import_key(cast("Any", said))
        if said.get("kty") == "RSA":
            key = RSAKey.import_key(cast("Any", said))
            return key if key.public_key.key_size >= _SHORTEST_RSA else None
    except (JoseError, ValueError, KeyError, TypeError):
        return None
    return None
