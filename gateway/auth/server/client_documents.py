"""Clients identified by the URL of a metadata document (Client ID Metadata Documents, CIMD).

The client chooses the URL, so documents are fetched only through the guarded HTTP client, with rate limits, and
validated strictly.
"""

import asyncio
import json
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Final, cast
from urllib.parse import urlsplit

import httpx

from gateway.auth.server.clients import RegisteredClient
from gateway.auth.server.registration import InvalidRegistration, clean_name, parse_redirect_uris
from gateway.contract import Json
from gateway.errors import Fault, Kind

MAX_BYTES: Final = 5 * 1024
TIMEOUT_SECONDS: Final = 5.0
_MIN_TTL: Final = 300.0
_MAX_TTL: Final = 86400.0
_MAX_CACHED: Final = 1000
_MAX_PER_HOST: Final = 5
_MAX_PER_ADDRESS: Final = 10
_MAX_CONCURRENT: Final = 16
"""Concurrent fetches in total. The limit per host is not enough: a domain owner has unlimited host names."""
_WINDOW_SECONDS: Final = 60.0
_MAX_AGE: Final = re.compile(r"(?:^|[\s,])max-age=(\d{1,9})", re.ASCII)
_URL: Final = re.compile(r"https://[A-Za-z0-9.:\[\]-]+/[A-Za-z0-9._~!$&'()*+,;=:@%/-]*", re.ASCII)


class ClientDocuments:
    """Fetches and caches client metadata documents.

    `domains` restricts the hosts to these domains and their subdomains; empty allows all.
    """

    def __init__(
        self, http: httpx.AsyncClient, domains: Sequence[str], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._http = http
        self._domains = tuple(domain.lower() for domain in domains)
        self._clock = clock
        self._cache: OrderedDict[str, tuple[RegisteredClient, float]] = OrderedDict()
        self._windows: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._fetching: dict[str, asyncio.Task[RegisteredClient | None]] = {}

    def cached(self, client_id: str) -> RegisteredClient | None:
        """Return a client from the cache. Fetches nothing; safe in any thread."""
        entry = self._cache.get(client_id)
        return entry[0] if entry is not None and self._clock() < entry[1] else None

    async def __call__(self, client_id: str, address: str = "") -> RegisteredClient | None:
        """Return the client of a document; None if the URL is not allowed or the document is invalid.

        Invalid documents are not cached. Raises `Fault(RATE_LIMITED)` if `address` has caused too many fetches, or if
        too many are in progress.
        """
        if (cached := self.cached(client_id)) is not None:
            return cached
        host = self._host(client_id)
        if host is None:
            return None
        task = self._fetching.get(client_id)
        if task is None:
            if len(self._fetching) >= _MAX_CONCURRENT or (
                address and not self._count(f"from {address}", _MAX_PER_ADDRESS)
            ):
                raise Fault(
                    Kind.RATE_LIMITED,
                    "Too many client documents are being fetched. Try again later.",
                    retry_after=_WINDOW_SECONDS,
                )
            if not self._count(host, _MAX_PER_HOST):
                return None
            task = asyncio.create_task(self._fetch(client_id, host))
            self._fetching[client_id] = task
            task.add_done_callback(lambda _: self._fetching.pop(client_id, None))
        return await asyncio.shield(task)

    def _host(self, client_id: str) -> str | None:
        if len(client_id) > 512 or not _URL.fullmatch(client_id):
            return None
        parts = urlsplit(client_id)
        host = (parts.hostname or "").lower()
        # The URL needs a path, and one that every parser reads the same way.
        if parts.path in ("", "/") or any(part in (".", "..") for part in parts.path.split("/")) or "%2e" in parts.path:
            return None
        allowed = not self._domains or any(host == each or host.endswith(f".{each}") for each in self._domains)
        return host if allowed else None

    def _count(self, name: str, limit: int) -> bool:
        """Count a fetch; return whether it is within the limit of the current window."""
        now = self._clock()
        count, ends = self._windows.get(name, (0, 0.0))
        count, ends = (count, ends) if now < ends else (0, now + _WINDOW_SECONDS)
        self._windows[name] = (count + 1, ends)
        self._windows.move_to_end(name)
        if len(self._windows) > _MAX_CACHED:
            self._windows.popitem(last=False)
        return count < limit

    async def _fetch(self, client_id: str, host: str) -> RegisteredClient | None:
        try:
            answer = await self._http.get(client_id, headers={"Accept": "application/json"})
            if answer.status_code != 200 or "json" not in answer.headers.get("content-type", ""):
                return None
            client = parse_document(client_id, host, answer.content)
        except (Fault, InvalidRegistration, httpx.HTTPError):
            return None
        age = _MAX_AGE.search(answer.headers.get("cache-control", ""))
        ttl = min(max(float(age[1]) if age else _MIN_TTL, _MIN_TTL), _MAX_TTL)
        self._cache[client_id] = (client, self._clock() + ttl)
        self._cache.move_to_end(client_id)
        if len(self._cache) > _MAX_CACHED:
            self._cache.popitem(last=False)
        return client


def parse_document(client_id: str, host: str, body: bytes) -> RegisteredClient:
    """Return the client that a document describes. Raises `InvalidRegistration`."""
    try:
        document: Any = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise InvalidRegistration("invalid_client_metadata", "The document is not a JSON object.")
    metadata = cast("Json", document)
    if metadata.get("client_id") != client_id or not isinstance(metadata.get("client_name"), str):
        raise InvalidRegistration("invalid_client_metadata", "The document describes another client.")
    method: Any = metadata.get("token_endpoint_auth_method", "none")
    jwks: Any = metadata.get("jwks")
    # A client that is not registered cannot share a secret.
    if method not in ("none", "private_key_jwt") or "client_secret" in metadata:
        raise InvalidRegistration(
            "invalid_client_metadata", "The document requires a shared secret, which is not supported."
        )
    if method == "private_key_jwt" and not isinstance(jwks, dict):
        raise InvalidRegistration("invalid_client_metadata", "The document has no keys.")
    return RegisteredClient(
        id=client_id,
        name=clean_name(metadata["client_name"]),
        redirect_uris=parse_redirect_uris(metadata.get("redirect_uris"), local=False, allowed=()),
        auth_method=method,
        grant_types=("authorization_code", "refresh_token"),
        jwks=cast("Json", jwks) if isinstance(jwks, dict) else None,
        document=host,
    )
