"""Where a browser may be sent back to."""

import re
from collections.abc import Collection, Iterable
from typing import Final
from urllib.parse import SplitResult, urlsplit

KNOWN: Final = frozenset(
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
"""Callbacks of well-known clients, letter by letter: no scheme or host is opened in general."""

_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_PLAIN: Final = re.compile(r"[!#-;=?-Z_a-z~\[\]%]{1,2000}", re.ASCII)


def acceptable(uri: str, *, local: bool, allowed: Iterable[str] = ()) -> bool:
    """Whether a client may register it: this machine's loopback, a known callback, or, unless `local`, any https."""
    if uri in KNOWN or uri in allowed:
        return True
    parts = _split(uri)
    if parts is None:
        return False
    if parts.scheme == "http":
        return parts.hostname in _LOOPBACK
    return parts.scheme == "https" and not local


def matches(registered: Iterable[str], uri: str) -> bool:
    """Whether it is one of these, exactly; only the port of a loopback address is the client's to choose (RFC 8252)."""
    known = set(registered)
    if uri in known:
        return True
    loose = _loopback(uri)
    return loose is not None and any(_loopback(each) == loose for each in known)


def trusted(uri: str, named: Collection[str]) -> bool:
    """Whether a browser may be sent there before its person decided anything: to this machine, to a known client, or
    where the operator says."""
    return is_loopback(uri) or uri in KNOWN or uri in named


def is_loopback(uri: str) -> bool:
    return _loopback(uri) is not None


def shown_host(uri: str) -> str:
    """What a person should read before agreeing: the host, or the program's own scheme."""
    parts = urlsplit(uri)
    return parts.netloc if parts.scheme in ("http", "https") else f"{parts.scheme}:"


def form_target(uri: str) -> str:
    """The source expression that lets a form's answer redirect there."""
    parts = urlsplit(uri)
    return f"{parts.scheme}://{parts.netloc}" if parts.scheme in ("http", "https") else f"{parts.scheme}:"


def _loopback(uri: str) -> tuple[str, str, str] | None:
    parts = _split(uri)
    if parts is None or parts.scheme != "http" or parts.hostname not in _LOOPBACK:
        return None
    return parts.hostname, parts.path, parts.query


def _split(uri: str) -> SplitResult | None:
    if not _PLAIN.fullmatch(uri):
        return None
    try:
        parts = urlsplit(uri)
        port = parts.port
    except ValueError:
        return None
    # A lower-case scheme only: what is compared letter by letter should have one spelling.
    if not uri.startswith(f"{parts.scheme}://") or not parts.hostname or port == 0:
        return None
    return None if "@" in parts.netloc or parts.fragment or "#" in uri else parts
