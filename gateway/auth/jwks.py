"""Public keys of an identity provider, found through its discovery document and cached.

Cached keys stay valid for a day while the provider is unreachable. Used by `ExternalIssuer` and by `gatehouse doctor`.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, cast
from urllib.parse import urlsplit

import httpx
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, RSAKey

from gateway.auth.jwt import Key
from gateway.contract import Json
from gateway.errors import Fault, Kind

MAX_BYTES: Final = 64 * 1024
_FRESH_SECONDS: Final = 600.0
_REFETCH_SECONDS: Final = 30.0
"""Minimum time between two fetches caused by an unknown key id."""
_STALE_SECONDS: Final = 86400.0
_MAX_KEYS: Final = 50
_MIN_RSA_BITS: Final = 2048


class IssuerKeys:
    """Keys of one issuer, by id. Concurrent lookups share one fetch."""

    def __init__(
        self,
        http: httpx.AsyncClient,
        issuer: str,
        *,
        find_document: Callable[[], Awaitable[Json]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`find_document` returns the discovery document; by default it is fetched from the issuer."""
        self._http = http
        self._issuer = issuer
        self._find_document = find_document
        self._clock = clock
        self._keys: dict[str, Key] = {}
        self._fetched: float | None = None
        self._last_attempt: float | None = None
        self._fetching: asyncio.Task[None] | None = None

    async def get(self, kid: str | None) -> Key | None:
        """Return a key; None if unknown. Raises `Fault(UNAVAILABLE)` if the last successful fetch is over a day old."""
        now = self._clock()
        known = self._find(kid)
        if self._fetched is None or now >= self._fetched + _FRESH_SECONDS or (known is None and self._may_refetch(now)):
            await self._refresh()
            known = self._find(kid)
        return known

    async def count(self) -> int:
        """Fetch the keys and return how many are usable. Raises `Fault(UNAVAILABLE)`."""
        await self._refresh()
        return len(self._keys)

    def _find(self, kid: str | None) -> Key | None:
        if kid is None:
            return next(iter(self._keys.values())) if len(self._keys) == 1 else None
        return self._keys.get(kid)

    def _may_refetch(self, now: float) -> bool:
        return self._last_attempt is None or now >= self._last_attempt + _REFETCH_SECONDS

    async def _refresh(self) -> None:
        if self._fetching is None:
            self._last_attempt = self._clock()
            self._fetching = asyncio.create_task(self._fetch())
            self._fetching.add_done_callback(self._finish_fetch)
        try:
            await asyncio.shield(self._fetching)
        except (Fault, httpx.HTTPError, InvalidDocument) as exc:
            stale_until = None if self._fetched is None else self._fetched + _STALE_SECONDS
            if stale_until is None or self._clock() >= stale_until:
                raise Fault(
                    Kind.UNAVAILABLE, "The identity provider is unreachable. Try again later.", retry_after=5
                ) from exc
            # Keep the cached keys and retry after `_REFETCH_SECONDS`.
            self._fetched = max(self._fetched or 0.0, self._clock() - _FRESH_SECONDS + _REFETCH_SECONDS)

    def _finish_fetch(self, task: asyncio.Task[None]) -> None:
        self._fetching = None
        if not task.cancelled():
            task.exception()  # marks it as retrieved; the waiting callers raise it

    async def _fetch(self) -> None:
        find = self._find_document
        document = await (discover(self._http, self._issuer) if find is None else find())
        url: Any = document.get("jwks_uri")
        if not isinstance(url, str):
            raise InvalidDocument
        self._keys = _usable_keys(await read_json(self._http, url))
        self._fetched = self._clock()


async def discover(http: httpx.AsyncClient, issuer: str) -> Json:
    """Return the discovery document that names this issuer. Raises `InvalidDocument`, `Fault`, `httpx.HTTPError`."""
    last: Exception = InvalidDocument()
    for url in metadata_urls(issuer):
        try:
            document = await read_json(http, url)
        except (Fault, httpx.HTTPError, InvalidDocument) as exc:
            last = exc
            continue
        if document.get("issuer") == issuer:
            return document
    raise last


def metadata_urls(issuer: str) -> tuple[str, str]:
    """Return the well-known URLs of an issuer's discovery document."""
    parts = urlsplit(issuer)
    path = parts.path.rstrip("/")
    return (
        f"{parts.scheme}://{parts.netloc}/.well-known/oauth-authorization-server{path}",
        f"{issuer.rstrip('/')}/.well-known/openid-configuration",
    )


class InvalidDocument(Exception):
    """The document is not valid discovery metadata or not a valid JWK set."""


async def read_json(http: httpx.AsyncClient, url: str) -> Json:
    """Fetch a JSON object. Raises `InvalidDocument`, `Fault`, `httpx.HTTPError`."""
    answer = await http.get(url, headers={"Accept": "application/json"})
    if answer.status_code != 200:
        raise InvalidDocument
    try:
        body: Any = answer.json()
    except (ValueError, RecursionError) as exc:
        raise InvalidDocument from exc
    if not isinstance(body, dict):
        raise InvalidDocument
    return cast("Json", body)


def _usable_keys(document: Json) -> dict[str, Key]:
    """Return the signing keys that are strong enough, by id. An ambiguous id is left out."""
    value: Any = document.get("keys")
    listed = cast("list[Any]", value) if isinstance(value, list) else []
    if not listed or len(listed) > _MAX_KEYS:
        raise InvalidDocument
    found: dict[str, Key | None] = {}
    for entry in listed:
        key = _import_key(entry)
        if key is not None:
            kid = str(cast("Json", entry).get("kid", ""))
            found[kid] = None if kid in found else key
    return {kid: key for kid, key in found.items() if key is not None}


def _import_key(entry: Any) -> Key | None:
    if not isinstance(entry, dict):
        return None
    jwk = cast("Json", entry)
    if jwk.get("use", "sig") != "sig" or "d" in jwk:
        return None
    try:
        if jwk.get("kty") == "EC" and jwk.get("crv") == "P-256":
            return ECKey.import_key(cast("Any", jwk))
        if jwk.get("kty") == "RSA":
            key = RSAKey.import_key(cast("Any", jwk))
            return key if key.public_key.key_size >= _MIN_RSA_BITS else None
    except (JoseError, ValueError, KeyError, TypeError):
        return None
    return None
