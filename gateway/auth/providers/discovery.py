"""The discovery document of an OpenID Connect provider, cached."""

import asyncio
import time
from collections.abc import Callable
from typing import Final

import httpx

from gateway.auth.jwks import InvalidDocument, read_json
from gateway.contract import Json
from gateway.errors import Fault, Kind

_FRESH_SECONDS: Final = 600.0
_STALE_SECONDS: Final = 86400.0
_MULTI_TENANT: Final = ("/organizations/v2.0", "/common/v2.0")


class ProviderDocument:
    """Fetches the document of one issuer. While the provider is unreachable, a document of the last day is used."""

    def __init__(self, http: httpx.AsyncClient, issuer: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._http = http
        self._issuer = issuer
        self._clock = clock
        self._document: Json | None = None
        self._fetched = 0.0
        self._fetching = asyncio.Lock()
        suffix = next((each for each in _MULTI_TENANT if issuer.endswith(each)), None)
        self.template = None if suffix is None else f"{issuer.removesuffix(suffix)}/{{tenantid}}/v2.0"
        """Issuer with a placeholder, for an Entra issuer that stands for several directories; else None."""

    async def get(self) -> Json:
        """Return the document. Raises `Fault(UNAVAILABLE)`."""
        async with self._fetching:
            age = self._clock() - self._fetched
            if self._document is not None and age < _FRESH_SECONDS:
                return self._document
            try:
                return await self.fetch()
            except (Fault, httpx.HTTPError, InvalidDocument) as exc:
                if self._document is not None and age < _STALE_SECONDS:
                    return self._document
                message = "The identity provider is unreachable. Try again later."
                raise Fault(Kind.UNAVAILABLE, message, retry_after=5) from exc

    async def fetch(self) -> Json:
        """Fetch the document now. Raises `InvalidDocument` if it names another issuer, `Fault`, `httpx.HTTPError`."""
        document = await read_json(self._http, f"{self._issuer.rstrip('/')}/.well-known/openid-configuration")
        if document.get("issuer") != (self.template or self._issuer):
            raise InvalidDocument
        self._document, self._fetched = document, self._clock()
        return document
