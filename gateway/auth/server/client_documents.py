"""Clients whose id is the address of a document about them (CIMD). Whoever writes the address chooses where we look,
so it is fetched through the guarded client only, and little of it is believed."""

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
from gateway.auth.server.registration import InvalidRegistration, clean_name, redirects
from gateway.contract import Json
from gateway.errors import Fault, Kind

MAX_BYTES: Final = 5 * 1024
SECONDS: Final = 5.0
_SHORTEST: Final = 300.0
_LONGEST: Final = 86400.0
_KEPT: Final = 1000
_PER_HOST: Final = 5
_PER_VISITOR: Final = 10
_AT_ONCE: Final = 16
"""Fetches under way for everybody together: whoever has a domain has as many host names as they like."""
_WINDOW: Final = 60.0
_MAX_AGE: Final = re.compile(r"(?:^|[\s,])max-age=(\d{1,9})", re.ASCII)
_URL: Final = re.compile(r"https://[A-Za-z0-9.:\[\]-]+/[A-Za-z0-9._~!$&'()*+,;=:@%/-]*", re.ASCII)


class ClientDocuments:
    """`domains`: hosts that are looked at, with everything below them; all, where none is named."""

    def __init__(
        self, http: httpx.AsyncClient, domains: Sequence[str], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._http = http
        self._domains = tuple(domain.lower() for domain in domains)
        self._clock = clock
        self._known: OrderedDict[str, tuple[RegisteredClient, float]] = OrderedDict()
        self._asked: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._fetching: dict[str, asyncio.Task[RegisteredClient | None]] = {}

    def known(self, client_id: str) -> RegisteredClient | None:
        """The client of a document that was fetched not long ago. Asks nobody; good in any thread."""
        known = self._known.get(client_id)
        return known[0] if known is not None and self._clock() < known[1] else None

    async def __call__(self, client_id: str, visitor: str = "") -> RegisteredClient | None:
        """None for an address that is not looked at, and for a document that is not good. Bad ones are not kept.

        Raises `Fault(RATE_LIMITED)` when the visitor has had too many fetched, or too many are under way.
        """
        if (known := self.known(client_id)) is not None:
            return known
        host = self._host(client_id)
        if host is None:
            return None
        task = self._fetching.get(client_id)
        if task is None:
            if len(self._fetching) >= _AT_ONCE or (visitor and not self._counted(f"from {visitor}", _PER_VISITOR)):
                raise Fault(Kind.RATE_LIMITED, "Too many clients are being looked up.", retry_after=_WINDOW)
            if not self._counted(host, _PER_HOST):
                return None
            task = asyncio.create_task(self._fetched(client_id, host))
            self._fetching[client_id] = task
            task.add_done_callback(lambda _: self._fetching.pop(client_id, None))
        return await asyncio.shield(task)

    def _host(self, client_id: str) -> str | None:
        if len(client_id) > 512 or not _URL.fullmatch(client_id):
            return None
        parts = urlsplit(client_id)
        host = (parts.hostname or "").lower()
        # A path of its own, and none that another would read differently.
        if parts.path in ("", "/") or any(part in (".", "..") for part in parts.path.split("/")) or "%2e" in parts.path:
            return None
        good = not self._domains or any(host == each or host.endswith(f".{each}") for each in self._domains)
        return host if good else None

    def _counted(self, name: str, most: int) -> bool:
        """Whether it may be once more within this minute."""
        now = self._clock()
        count, ends = self._asked.get(name, (0, 0.0))
        count, ends = (count, ends) if now < ends else (0, now + _WINDOW)
        self._asked[name] = (count + 1, ends)
        self._asked.move_to_end(name)
        if len(self._asked) > _KEPT:
            self._asked.popitem(last=False)
        return count < most

    async def _fetched(self, client_id: str, host: str) -> RegisteredClient | None:
        try:
            answer = await self._http.get(client_id, headers={"Accept": "application/json"})
            if answer.status_code != 200 or "json" not in answer.headers.get("content-type", ""):
                return None
            client = described(client_id, host, answer.content)
        except (Fault, InvalidRegistration, httpx.HTTPError):
            return None
        age = _MAX_AGE.search(answer.headers.get("cache-control", ""))
        lasts = min(max(float(age[1]) if age else _SHORTEST, _SHORTEST), _LONGEST)
        self._known[client_id] = (client, self._clock() + lasts)
        self._known.move_to_end(client_id)
        if len(self._known) > _KEPT:
            self._known.popitem(last=False)
        return client


def described(client_id: str, host: str, body: bytes) -> RegisteredClient:
    """The client that the document at its own address describes. Raises `Unfit`."""
    try:
        said: Any = json.loads(body)
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        raise InvalidRegistration("invalid_client_metadata", "The document is not a JSON object.")
    metadata = cast("Json", said)
    if metadata.get("client_id") != client_id or not isinstance(metadata.get("client_name"), str):
        raise InvalidRegistration("invalid_client_metadata", "The document is about another client.")
    method: Any = metadata.get("token_endpoint_auth_method", "none")
    jwks: Any = metadata.get("jwks")
    # No secret can be shared with a client that never met us.
    if method not in ("none", "private_key_jwt") or "client_secret" in metadata:
        raise InvalidRegistration("invalid_client_metadata", "The document asks for a shared secret.")
    if method == "private_key_jwt" and not isinstance(jwks, dict):
        raise InvalidRegistration("invalid_client_metadata", "The document has no keys.")
    return RegisteredClient(
        id=client_id,
        name=clean_name(metadata["client_name"]),
        redirect_uris=redirects(metadata.get("redirect_uris"), local=False, allowed=()),
        auth_method=method,
        grant_types=("authorization_code", "refresh_token"),
        jwks=cast("Json", jwks) if isinstance(jwks, dict) else None,
        document=host,
    )
