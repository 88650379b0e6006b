"""What a request carries to say who sends it, and what can be done when the server is not content with it."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Protocol

_PART: Final = r'\b{}=(?:"([^"]*)"|([^\s,"]+))'


class Refused(Exception):
    """The answer is no message; `status` is 0 when there was no answer."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status
        self.words = words


class Step(Enum):
    """How a credential was renewed."""

    FOUND = auto()
    """Somebody else had renewed it meanwhile."""
    REFRESHED = auto()
    SIGNED_IN = auto()
    STEPPED_UP = auto()
    """A person agreed to more scopes."""


@dataclass(frozen=True, slots=True)
class Challenge:
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


class Credential(Protocol):
    @property
    def refusal(self) -> str:
        """What to say of a server that will not have it, after its address."""
        ...

    async def token(self) -> str | None:
        """What to send as a bearer token, if there is anything."""
        ...

    async def renew(
        self, challenge: Challenge, token: str | None, done: Collection[Step], *, asking: bool
    ) -> Step | None:
        """Another try is worth while after this; None if not. `done` is what was done for this request already.

        A person is bothered only if `asking`. Raises `Refused` when it was tried and did not work.
        """
        ...


@dataclass(frozen=True, slots=True)
class Key:
    """What the user gave: it is good, or it is not."""

    text: str
    refusal: str = "does not accept this key"

    async def token(self) -> str:
        return self.text

    async def renew(
        self, challenge: Challenge, token: str | None, done: Collection[Step], *, asking: bool
    ) -> Step | None:
        return None
