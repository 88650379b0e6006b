"""From a bearer credential to a `Caller`, through a cache of what was verified.

What a credential was made for.

What a client without a good credential is told: where to get one (RFC 6750, RFC 9728).
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from hashlib import sha256
from time import monotonic
from typing import Final, TypeVar

from gateway.contract import Caller
from gateway.edge.client_address import neighbour
from gateway.errors import Fault, Kind

_BAD_FOR: Final = 1.0

_ADDRESSES: Final = 10_000

K = TypeVar("K")

V = TypeVar("V")


class BearerAuthenticator:
    """Verified credentials are kept by their SHA-256 for `ttl` seconds at most, failures for one second."""

    def __init__(
        self,
        verify: Callable[[str], Awaitable[Caller | None]],
        ttl: float = 60,
        size: int = 10_000,
        failures: int = 20,
        window: float = 60.0,
        leeway: float = 0.0,
        key_id: Callable[[str], str | None] = lambda token: None,
    ) -> None:
        self._verify = verify
        self._leeway = leeway
        self._key_id = key_id
        self._ttl = ttl
        self._size = size
        self._known: OrderedDict[bytes, tuple[Caller, float]] = OrderedDict()
        self._bad: OrderedDict[bytes, float] = OrderedDict()
        self._guesses = _Guesses(failures, window)
        self._generation = 0
        self._checking: dict[bytes, asyncio.Future[Caller | None]] = {}

    def known(self, authorization: str | None) -> Caller | None:
        """Whose credential it is, if it was verified not long ago."""
        digest = sha256(_token(authorization).encode()).digest()
        known = self._known.get(digest)
        if known is None or monotonic() >= known[1]:
            return None
        self._known.move_to_end(digest)
        return known[0]

    async def caller(self, authorization: str | None, address: str = "") -> Caller:
        """Whose credential the Authorization header holds; `address` is the client's.

        Raises `Fault(UNAUTHENTICATED)` with `missing`, `invalid` or `expired` as its `reason`, and
        `Fault(RATE_LIMITED)` for a further invalid one from an address that guesses, or at a key that is guessed at;
        a valid one passes from anywhere.
        """
        token = _token(authorization)
        if not token:
            raise Fault(Kind.UNAUTHENTICATED, "A bearer credential is needed.", details={"reason": "missing"})
        if (known := self.known(authorization)) is not None:
            return known
        digest = sha256(token.encode()).digest()
        self._known.pop(digest, None)
        caller = None if self._bad.get(digest, 0.0) > monotonic() else await self._checked_once(digest, token)
        if caller is None:
            raise self._guesses.failed(neighbour(address), self._key_id(token))
        return caller

    def forget(self) -> None:
        """Verify everything anew: a key was made, changed or revoked."""
        self._generation += 1
        self._checking.clear()
        self._known.clear()
        self._bad.clear()

    async def _checked_once(self, digest: bytes, token: str) -> Caller | None:
        """However many come with one credential at the same moment, it is verified once."""
        under_way = self._checking.get(digest)
        if under_way is None:
            under_way = self._checking[digest] = asyncio.ensure_future(self._check(digest, token))
        try:
            # Whoever leaves does not take the others' answer along.
            return await asyncio.shield(under_way)
        finally:
            if self._checking.get(digest) is under_way:
                del self._checking[digest]

    async def _check(self, digest: bytes, token: str) -> Caller | None:
        generation = self._generation
        caller = await self._verify(token)
        now, lasts = monotonic(), self._ttl
        if caller is not None and caller.expires is not None:
            left = caller.expires - time.time()
            caller, lasts = (caller, min(lasts, left)) if left + self._leeway > 0 else (None, lasts)
        if generation != self._generation:
            # What was true when we asked may have been revoked since: good for this once, not for the cache.
            return caller
        if caller is None:
            _keep(self._bad, digest, now + _BAD_FOR, self._size)
        elif lasts > 0:  # within the leeway it is good, and verified each time
            _keep(self._known, digest, (caller, now + lasts), self._size)
        return caller


class _Guesses:
    """Invalid credentials by address, and by the key they are guesses at, in windows that begin with the first."""

    def __init__(self, most: int, window: float) -> None:
        self._most = most
        self._window = window
        self._counts: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def failed(self, address: str, key_id: str | None) -> Fault:
        """Count one more, and say how it is answered."""
        waits = [self._count(each) for each in (address, key_id and f"key {key_id}") if each is not None]
        if not any(waits):
            return Fault(Kind.UNAUTHENTICATED, "The credential is not valid.", details={"reason": "invalid"})
        return Fault(Kind.RATE_LIMITED, "Too many invalid credentials.", retry_after=max(waits))

    def _count(self, name: str) -> float:
        """Seconds until this one may fail again; 0 when it may now."""
        now = monotonic()
        count, ends = self._counts.get(name, (0, 0.0))
        if now >= ends:
            count, ends = 0, now + self._window
        _keep(self._counts, name, (count + 1, ends), _ADDRESSES)
        return 0.0 if count < self._most else ends - now


def _token(authorization: str | None) -> str:
    if authorization is None or authorization[:7].lower() != "bearer ":
        return ""
    return authorization[7:].strip()


def _keep(kept: OrderedDict[K, V], key: K, value: V, most: int) -> None:
    kept[key] = value
    kept.move_to_end(key)
    if len(kept) > most:
        kept.popitem(last=False)


HOUSE = "/mcp"

"""The endpoint whose credentials are good for the whole house."""


def check_audience(caller: Caller, endpoint: str = HOUSE) -> None:
    """Raises `Fault(UNAUTHENTICATED)` unless the credential is for this endpoint or for the whole house."""
    if caller.resource not in (HOUSE, endpoint):
        raise Fault(Kind.UNAUTHENTICATED, "The credential is for another endpoint.", details={"reason": "invalid"})


Header = tuple[bytes, bytes]

METADATA: Final = "/.well-known/oauth-protected-resource"

_NAME: Final = b"www-authenticate"


class OAuthChallenge:
    """Writes `WWW-Authenticate`. `scopes` are asked for up front; `served` says which endpoints there are."""

    def __init__(self, public_url: str, scopes: Iterable[str], served: Callable[[str], bool]) -> None:
        self._public_url = public_url
        self._scopes = " ".join(scopes)
        self._served = served

    def unauthenticated(self, fault: Fault, path: str) -> Header:
        """401. Whoever sent no credential made no error (RFC 6750, 3.1)."""
        error: tuple[tuple[str, str], ...] = ()
        if fault.details.get("reason") != "missing":
            error = (("error", "invalid_token"), ("error_description", fault.message))
        return self._header(*error, self._metadata(path), ("scope", self._scopes))

    def insufficient(self, fault: Fault, path: str, scopes: Iterable[str]) -> Header:
        """403: the token lacks these scopes."""
        return self._header(
            ("error", "insufficient_scope"),
            ("scope", " ".join(scopes)),
            self._metadata(path),
            ("error_description", fault.message),
        )

    def _metadata(self, path: str) -> tuple[str, str]:
        return "resource_metadata", f"{self._public_url}{METADATA}{path if self._served(path) else '/mcp'}"

    def _header(self, *parts: tuple[str, str]) -> Header:
        written = ", ".join(f'{name}="{_quotable(value)}"' for name, value in parts)
        return _NAME, f"Bearer {written}".encode("ascii", "replace")


class PlainChallenge:
    """Where there is nothing to discover: keys only."""

    def unauthenticated(self, fault: Fault, path: str) -> Header:
        return _NAME, b"Bearer"


def _quotable(text: str) -> str:
    """What may stand between quotes (RFC 6750, 3): visible ASCII without quote and backslash."""
    return "".join(each if " " <= each <= "~" and each not in '"\\' else "'" for each in text)[:300]
