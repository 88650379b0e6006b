"""Validation of redirect URIs."""

import re
from collections.abc import Collection, Iterable
from typing import Final
from urllib.parse import SplitResult, urlsplit

KNOWN_CALLBACKS: Final = frozenset(
    {
        "cursor://anysphere.cursor-mcp/oauth/callback",
        "https://www.cursor.com/agents/mcp/oauth/callback",
        "https://vscode.dev/redirect",
        "https://insiders.vscode.dev/redirect",
        "https://claude.ai/api/mcp/auth_callback",
        "https://claude.com/api/mcp/auth_callback",
        "https://chatgpt.com/connector_platform_oauth_redirect",
    }
)
"""Exact callbacks of well-known clients; other URIs with the same scheme or host are not accepted."""

_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_URI_CHARACTERS: Final = re.compile(r"[!#-;=?-Z_a-z~\[\]%]{1,2000}", re.ASCII)


def can_register(uri: str, *, local: bool, allowed: Iterable[str] = ()) -> bool:
    """Return whether a client may register the URI: loopback, a known callback or, unless `local`, any https URI."""
    if uri in KNOWN_CALLBACKS or uri in allowed:
        return True
    parts = _split(uri)
    if parts is None:
        return False
    if parts.scheme == "http":
        return parts.hostname in _LOOPBACK
    return parts.scheme == "https" and not local


def matches(registered: Iterable[str], uri: str) -> bool:
    """Return whether the URI is registered. The match is exact, except for the port of a loopback URI (RFC 8252)."""
    known = set(registered)
    if uri in known:
        return True
    wanted = _loopback(uri)
    return wanted is not None and any(_loopback(each) == wanted for each in known)


def is_trusted(uri: str, allowed: Collection[str]) -> bool:
    """Return whether to redirect there without the user's consent: loopback, a known callback or an allowed URI."""
    return is_loopback(uri) or uri in KNOWN_CALLBACKS or uri in allowed


def is_loopback(uri: str) -> bool:
    return _loopback(uri) is not None


def display_host(uri: str) -> str:
    """Return the host to show to the user; for a custom scheme, the scheme."""
    parts = urlsplit(uri)
    return parts.netloc if parts.scheme in ("http", "https") else f"{parts.scheme}:"


def form_action_source(uri: str) -> str:
    """Return the CSP `form-action` source that allows the redirect after a form submission."""
    parts = urlsplit(uri)
    return f"{parts.scheme}://{parts.netloc}" if parts.scheme in ("http", "https") else f"{parts.scheme}:"


def _loopback(uri: str) -> tuple[str, str, str] | None:
    parts = _split(uri)
    if parts is None or parts.scheme != "http" or parts.hostname not in _LOOPBACK:
        return None
    return parts.hostname, parts.path, parts.query


def _split(uri: str) -> SplitResult | None:
    if not _URI_CHARACTERS.fullmatch(uri):
        return None
    try:
        parts = urlsplit(uri)
        port = parts.port
    except ValueError:
        return None
    # Only a lower-case scheme: URIs are compared as strings, so they need one spelling.
    if not uri.startswith(f"{parts.scheme}://") or not parts.hostname or port == 0:
        return None
    return None if "@" in parts.netloc or parts.fragment or "#" in uri else parts
