"""The names clients see. A name depends on nothing but its namespace and tool.

Namespaces have no underscore, so the first `_` or `.` splits, and no backend can take another's prefix.
Prompts are named like tools.
"""

import re
from base64 import b32encode
from collections.abc import Iterable
from hashlib import sha256
from typing import Final, Literal

Mode = Literal["underscore", "dotted", "bare"]

NAMESPACE: Final = re.compile(r"[a-z][a-z0-9-]{0,19}")

MAX_LENGTH: Final = 64
PREFIX_BUDGET: Final = 16
"""What clients put before a name, and count with it."""

_DIGEST_CHARS: Final = 6
SHORTEST_LIMIT: Final = 20 + 1 + 1 + _DIGEST_CHARS
"""`max_length` less `prefix_budget` may not be less: the longest namespace, both separators, the digest."""


def split(name: str) -> tuple[str, str] | None:
    """(namespace, the rest) of a canonical id or of a name in underscore mode; None when it has no namespace."""
    parts = _SPLIT.fullmatch(name)
    return (parts[1], parts[2]) if parts else None


def canonical(namespace: str, tool: str) -> str:
    """A tool's id for policy, audit and traces: `launch.start_run`, also when the tool says `launch_` itself."""
    return f"{namespace}.{_own(namespace, tool)}"


def exposed(
    namespace: str, tool: str, mode: Mode, max_length: int = MAX_LENGTH, prefix_budget: int = PREFIX_BUDGET
) -> str:
    """What the tool is called in a list of that mode."""
    match mode:
        case "bare":
            return tool
        case "dotted":
            return canonical(namespace, tool)
        case "underscore":
            return _underscored(namespace, tool, max_length - prefix_budget)


def collisions(
    namespace: str, tools: Iterable[str], max_length: int = MAX_LENGTH, prefix_budget: int = PREFIX_BUDGET
) -> set[str]:
    """The tools of one backend to quarantine, so that no two of the rest share an exposed name or canonical id.

    Of `x` and `namespace_x` the latter stays; of a tool's own name and one that a digest made, the own name; of two
    that digests made, neither.
    """
    sharing: dict[str, set[str]] = {}
    for tool in tools:
        sharing.setdefault(_underscored(namespace, tool, max_length - prefix_budget), set()).add(tool)
    return {tool for name, group in sharing.items() if len(group) > 1 for tool in group - _heir(namespace, name, group)}


def _heir(namespace: str, name: str, group: set[str]) -> set[str]:
    literal = {tool for tool in group if f"{namespace}_{_own(namespace, tool)}" == name}
    claims = literal or group
    heirs = {tool for tool in claims if _own(namespace, tool) != tool} or claims
    return heirs if len(heirs) == 1 else set()


def _own(namespace: str, tool: str) -> str:
    """The tool's name without the prefix it already has; a name that is nothing but the prefix keeps it."""
    return tool.removeprefix(f"{namespace}_") or tool


def _underscored(namespace: str, tool: str, limit: int) -> str:
    if limit < SHORTEST_LIMIT:
        raise ValueError(f"Names need at least {SHORTEST_LIMIT} characters beside the client's prefix.")
    own = _own(namespace, tool)
    name = f"{namespace}_{own}"
    if len(name) <= limit and _PLAIN.fullmatch(own):
        return name
    # Of the canonical id, so that `x!` and `namespace_x!` meet as `x` and `namespace_x` do.
    tail = sha256(canonical(namespace, tool).encode(errors="surrogatepass")).digest()
    clean = _UNFIT.sub("_", name)[: limit - _DIGEST_CHARS - 1]
    return f"{clean}_{b32encode(tail)[:_DIGEST_CHARS].decode().lower()}"


_SPLIT: Final = re.compile(rf"({NAMESPACE.pattern})[_.](.+)", re.DOTALL)
_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]+")
_UNFIT: Final = re.compile(r"[^A-Za-z0-9_-]")
