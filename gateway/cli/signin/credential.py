"""What a request carries to say who sends it, and what can be done when the server is not content with it.

Who a command is to an authorization server, as far as its user says so.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, Protocol
from urllib.parse import urlsplit

_PART: Final = r'\b{}=(?:"([^"]*)"|([^\s,"]+))'


class CredentialRejected(Exception):
    """The answer is no message; `status` is 0 when there was no answer."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status
        self.words = words


class CredentialStep(Enum):
    """How a credential was renewed."""

    FOUND = auto()
    """Somebody else had renewed it meanwhile."""
    REFRESHED = auto()
    SIGNED_IN = auto()
    STEPPED_UP = auto()
    """A person agreed to more scopes."""


@dataclass(frozen=True, slots=True)
class AuthChallenge:
    """A server's answer to a credential that it does not accept."""

    status: int
    header: str
    """Its `WWW-Authenticate`."""
    version: str = ""
    """The `MCP-Protocol-Version` of the request."""

    @property
    def wants_scope(self) -> bool:
        return self.status == 403 and self._part("error") == "insufficient_scope"

    @property
    def scopes(self) -> frozenset[str]:
        return frozenset(self._part("scope").split())

    def _part(self, name: str) -> str:
        found = re.search(_PART.format(name), self.header)
        return (found[1] or found[2] or "") if found else ""


class ClientCredential(Protocol):
    @property
    def refusal(self) -> str:
        """What to say of a server that will not have it, after its address."""
        ...

    async def token(self) -> str | None:
        """What to send as a bearer token, if there is anything."""
        ...

    async def renew(
        self, challenge: AuthChallenge, token: str | None, done: Collection[CredentialStep], *, asking: bool
    ) -> CredentialStep | None:
        """Another try is worth while after this; None if not. `done` is what was done for this request already.

        A person is bothered only if `asking`. Raises `Refused` when it was tried and did not work.
        """
        ...


@dataclass(frozen=True, slots=True)
class KeyCredential:
    """What the user gave: it is good, or it is not."""

    text: str
    refusal: str = "does not accept this key"

    async def token(self) -> str:
        return self.text

    async def renew(
        self, challenge: AuthChallenge, token: str | None, done: Collection[CredentialStep], *, asking: bool
    ) -> CredentialStep | None:
        return None


@dataclass(frozen=True, slots=True)
class ClientRegistration:
    """With nothing given it registers itself."""

    id: str | None = None
    """The client as an operator has registered it there."""
    secret: str | None = field(default=None, repr=False)
    document: str | None = None
    """Where a client document (CIMD) of it lies, which is then its id wherever such are known."""
    port: int = 0
    """Where the browser comes back to, on this machine; 0 is any that is free."""

    def problem(self) -> str:
        """What cannot be meant, in words for the user."""
        parts = urlsplit(self.document or "https://example.org/client.json")
        if self.id is not None and self.document is not None:
            return "give --client-id or --client-document, not both"
        if self.secret is not None and self.id is None:
            return "--client-secret needs --client-id"
        if parts.scheme != "https" or parts.path in ("", "/"):
            return "--client-document is an https address with a path"
        return ""
