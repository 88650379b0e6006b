"""Credentials of the stdio client: the protocol they implement, the API key, and the OAuth client registration."""

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, Protocol
from urllib.parse import urlsplit

_PARAMETER: Final = r'\b{}=(?:"([^"]*)"|([^\s,"]+))'


class CredentialRejected(Exception):
    """The gateway could not be used with this credential; `status` is 0 if there was no HTTP response."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class CredentialStep(Enum):
    """How a credential was renewed."""

    FOUND = auto()
    """Another request or process had renewed it meanwhile."""
    REFRESHED = auto()
    SIGNED_IN = auto()
    STEPPED_UP = auto()
    """The user consented to more scopes."""


@dataclass(frozen=True, slots=True)
class AuthChallenge:
    """The response of a server that rejects a credential."""

    status: int
    header: str
    """Its `WWW-Authenticate`."""
    version: str = ""
    """The `MCP-Protocol-Version` of the request."""

    @property
    def wants_scope(self) -> bool:
        return self.status == 403 and self._parameter("error") == "insufficient_scope"

    @property
    def scopes(self) -> frozenset[str]:
        return frozenset(self._parameter("scope").split())

    def _parameter(self, name: str) -> str:
        found = re.search(_PARAMETER.format(name), self.header)
        return (found[1] or found[2] or "") if found else ""


class ClientCredential(Protocol):
    @property
    def rejection_hint(self) -> str:
        """The message for a rejected credential, appended to the server's URL."""
        ...

    async def token(self) -> str | None:
        """The bearer token to send, if any."""
        ...

    async def renew(
        self, challenge: AuthChallenge, token: str | None, done: Collection[CredentialStep], *, interactive: bool
    ) -> CredentialStep | None:
        """Renew the credential and return the step taken; None if a retry is pointless.

        `done` lists the steps already taken for this request. Only an `interactive` renewal opens the browser.
        Raises `CredentialRejected` when the renewal fails.
        """
        ...


@dataclass(frozen=True, slots=True)
class KeyCredential:
    """An API key or token supplied by the user; it cannot be renewed."""

    text: str
    rejection_hint: str = "rejected the key"

    async def token(self) -> str:
        return self.text

    async def renew(
        self, challenge: AuthChallenge, token: str | None, done: Collection[CredentialStep], *, interactive: bool
    ) -> CredentialStep | None:
        return None


@dataclass(frozen=True, slots=True)
class ClientRegistration:
    """The OAuth client that the user configured; without one the command registers itself dynamically."""

    id: str | None = None
    """ID of a client that an operator registered."""
    secret: str | None = field(default=None, repr=False)
    document: str | None = None
    """URL of a client metadata document (CIMD), used as the client ID where the server supports it."""
    port: int = 0
    """Port of the callback on this machine; 0 is any free port."""

    def problem(self) -> str:
        """An error message for an invalid combination of options; empty if valid."""
        parts = urlsplit(self.document or "https://example.org/client.json")
        if self.id is not None and self.document is not None:
            return "give --client-id or --client-document, not both"
        if self.secret is not None and self.id is None:
            return "--client-secret requires --client-id"
        if parts.scheme != "https" or parts.path in ("", "/"):
            return "--client-document must be an https URL with a path"
        return ""
