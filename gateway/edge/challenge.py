"""What a client without a good credential is told: where to get one (RFC 6750, RFC 9728)."""

from collections.abc import Callable, Iterable
from typing import Final

from gateway.errors import Fault

Header = tuple[bytes, bytes]

METADATA: Final = "/.well-known/oauth-protected-resource"
_NAME: Final = b"www-authenticate"


class Challenge:
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
