"""Authenticates bearer credentials with a cache, checks their audience, and builds `WWW-Authenticate` challenges."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from hashlib import sha256
from time import monotonic
from typing import Final, TypeVar

from gateway.contract import Caller
from gateway.edge.client_address import address_group
from gateway.errors import Fault, Kind

_INVALID_TTL: Final = 1.0
_MAX_ADDRESSES: Final = 10_000
K = TypeVar("K")
V = TypeVar("V")


class BearerAuthenticator:
    """Caches verified credentials by their SHA-256 for up to `ttl` seconds, invalid ones for one second."""

    def __init__(
        self,
        verify: Callable[[str], Awaitable[Caller | None]],
        ttl: float = 60,
        size: int = 10_000,
        failures: int = 20,
        window: float = 60.0,
        leeway: float = 0.0,
        key_id: Callable[[str], str | None] = lambda token: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._verify = verify
        self._clock = clock
        self._leeway = leeway
        self._key_id = key_id
        self._ttl = ttl
        self._size = size
        self._verified: OrderedDict[bytes, tuple[Caller, float]] = OrderedDict()
        self._invalid: OrderedDict[bytes, float] = OrderedDict()
        self._failures = _FailureLimiter(failures, window)
        self._generation = 0
        self._verifying: dict[bytes, asyncio.Future[Caller | None]] = {}

    def cached(self, headers: Mapping[str, str]) -> Caller | None:
        """Return the caller if the credential was verified recently; None if it must be verified."""
        digest = sha256(bearer_token(headers).encode()).digest()
        entry = self._verified.get(digest)
        if entry is None or monotonic() >= entry[1]:
            return None
        self._verified.move_to_end(digest)
        return entry[0]

    async def authenticate(self, headers: Mapping[str, str], address: str = "") -> Caller:
        """Return the caller of the credential in the headers; `address` is the client's.

        Raises `Fault(UNAUTHENTICATED)` with `missing`, `invalid` or `expired` as its `reason`. Raises
        `Fault(RATE_LIMITED)` for an invalid credential after too many failures from its address or for its key; valid
        credentials are never rate limited here.
        """
        token = bearer_token(headers)
        if not token:
            raise Fault(
                Kind.UNAUTHENTICATED,
                "A credential is required: Authorization: Bearer <key or token>.",
                details={"reason": "missing"},
            )
        if (cached := self.cached(headers)) is not None:
            return cached
        digest = sha256(token.encode()).digest()
        self._verified.pop(digest, None)
        caller = None if self._invalid.get(digest, 0.0) > monotonic() else await self._verify_once(digest, token)
        if caller is None:
            raise self._failures.record_failure(address_group(address), self._key_id(token))
        return caller

    def clear(self) -> None:
        """Drop the cache: a key was created, changed or revoked."""
        self._generation += 1
        self._verifying.clear()
        self._verified.clear()
        self._invalid.clear()

    async def _verify_once(self, digest: bytes, token: str) -> Caller | None:
        """Verify a credential once for all requests that wait for it."""
        running = self._verifying.get(digest)
        if running is None:
            running = self._verifying[digest] = asyncio.ensure_future(self._verify_and_cache(digest, token))
        try:
            # Shielded: a cancelled request must not cancel the verification for the others.
            return await asyncio.shield(running)
        finally:
            if self._verifying.get(digest) is running:
                del self._verifying[digest]

    async def _verify_and_cache(self, digest: bytes, token: str) -> Caller | None:
        generation = self._generation
        caller = await self._verify(token)
        now, lasts = monotonic(), self._ttl
        if caller is not None and caller.expires is not None:
            left = caller.expires - self._clock()
            caller, lasts = (caller, min(lasts, left)) if left + self._leeway > 0 else (None, lasts)
        if generation != self._generation:
            # The credential may have been revoked during verification: use the result once, do not cache it.
            return caller
        if caller is None:
            _cache(self._invalid, digest, now + _INVALID_TTL, self._size)
        elif lasts > 0:  # within the leeway it is valid but not cached
            _cache(self._verified, digest, (caller, now + lasts), self._size)
        return caller


class _FailureLimiter:
    """Counts invalid credentials per address and per key id, in windows that start with the first failure."""

    def __init__(self, max_failures: int, window: float) -> None:
        self._max_failures = max_failures
        self._window = window
        self._counts: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def record_failure(self, address: str, key_id: str | None) -> Fault:
        """Count a failure and return the fault to raise."""
        waits = [self._count(each) for each in (address, key_id and f"key {key_id}") if each is not None]
        if not any(waits):
            return Fault(Kind.UNAUTHENTICATED, "The credential is not valid.", details={"reason": "invalid"})
        return Fault(Kind.RATE_LIMITED, "Too many invalid credentials.", retry_after=max(waits))

    def _count(self, name: str) -> float:
        """Count a failure; return the seconds until the next one is allowed, 0 if it is allowed now."""
        now = monotonic()
        count, ends = self._counts.get(name, (0, 0.0))
        if now >= ends:
            count, ends = 0, now + self._window
        _cache(self._counts, name, (count + 1, ends), _MAX_ADDRESSES)
        return 0.0 if count < self._max_failures else ends - now


def bearer_token(headers: Mapping[str, str]) -> str:
    """Return the token of `Authorization: Bearer` or the value of `X-API-Key`; empty if there is neither."""
    authorization = headers.get("authorization")
    if authorization is None:
        return headers.get("x-api-key", "").strip()
    return authorization[7:].strip() if authorization[:7].lower() == "bearer " else ""


def _cache(cache: OrderedDict[K, V], key: K, value: V, max_size: int) -> None:
    cache[key] = value
    cache.move_to_end(key)
    if len(cache) > max_size:
        cache.popitem(last=False)


ALL_ENDPOINTS = "/mcp"
"""A credential for this endpoint is valid for all endpoints."""


def check_audience(caller: Caller, endpoint: str = ALL_ENDPOINTS) -> None:
    """Raise `Fault(UNAUTHENTICATED)` unless the credential is valid for this endpoint."""
    if caller.resource not in (ALL_ENDPOINTS, endpoint):
        raise Fault(
            Kind.UNAUTHENTICATED,
            "The credential is for another endpoint. Use one for this endpoint or for /mcp.",
            details={"reason": "invalid"},
        )


Header = tuple[bytes, bytes]
METADATA: Final = "/.well-known/oauth-protected-resource"
_HEADER_NAME: Final = b"www-authenticate"


class OAuthChallenge:
    """Builds `WWW-Authenticate` (RFC 6750, RFC 9728). `scopes` are requested up front; `served` checks endpoints."""

    def __init__(self, public_url: str, scopes: Iterable[str], served: Callable[[str], bool]) -> None:
        self._public_url = public_url
        self._scopes = " ".join(scopes)
        self._served = served

    def unauthenticated(self, fault: Fault, path: str) -> Header:
        """Challenge of a 401. A missing credential is not an error (RFC 6750, 3.1)."""
        error: tuple[tuple[str, str], ...] = ()
        if fault.details.get("reason") != "missing":
            error = (("error", "invalid_token"), ("error_description", fault.message))
        return self._header(*error, self._metadata(path), ("scope", self._scopes))

    def insufficient(self, fault: Fault, path: str, scopes: Iterable[str]) -> Header:
        """Challenge of a 403 for a token without these scopes."""
        return self._header(
            ("error", "insufficient_scope"),
            ("scope", " ".join(scopes)),
            self._metadata(path),
            ("error_description", fault.message),
        )

    def _metadata(self, path: str) -> tuple[str, str]:
        return "resource_metadata", f"{self._public_url}{METADATA}{path if self._served(path) else '/mcp'}"

    def _header(self, *parts: tuple[str, str]) -> Header:
        written = ", ".join(f'{name}="{_quoted_text(value)}"' for name, value in parts)
        return _HEADER_NAME, f"Bearer {written}".encode("ascii", "replace")


class PlainChallenge:
    """The challenge of a gateway that accepts API keys only: there is nothing to discover."""

    def unauthenticated(self, fault: Fault, path: str) -> Header:
        return _HEADER_NAME, b"Bearer"


def _quoted_text(text: str) -> str:
    """Replace characters that a quoted string may not contain (RFC 6750, 3)."""
    return "".join(each if " " <= each <= "~" and each not in '"\\' else "'" for each in text)[:300]
