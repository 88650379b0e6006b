"""Names of tools and prompts as clients see them. A name depends only on the namespace and the tool.

Namespaces contain no underscore, so the first `_` or `.` separates them, and no backend can use another's prefix.
Prompts are named like tools.
"""

import re
from base64 import b32encode
from collections.abc import Iterable
from hashlib import sha256
from typing import Final, Literal

Mode = Literal["underscore", "dotted", "bare"]

SEARCH_TOOLS: Final = "search_tools"
DESCRIBE_TOOLS: Final = "describe_tools"
CALL_TOOL: Final = "call_tool"
GATEWAY_TOOLS: Final = frozenset({SEARCH_TOOLS, DESCRIBE_TOOLS, CALL_TOOL})
"""The gateway's own tools on an endpoint that is searched. Their names cannot be given to other tools."""

NAMESPACE: Final = re.compile(r"[a-z][a-z0-9-]{0,19}")

MAX_NAME_LENGTH: Final = 64
PREFIX_BUDGET: Final = 16
"""Length reserved for the prefix that clients add to a name."""

_DIGEST_CHARS: Final = 6
MIN_NAME_LENGTH: Final = 20 + 1 + 1 + _DIGEST_CHARS
"""Minimum of `max_length - prefix_budget`: the longest namespace, two separators and the digest."""


def split(name: str) -> tuple[str, str] | None:
    """Split a canonical id or an underscore name into namespace and rest. None if it has no namespace."""
    parts = _SPLIT.fullmatch(name)
    return (parts[1], parts[2]) if parts else None


def canonical(namespace: str, tool: str) -> str:
    """A tool's id in policy, audit and traces: `launch.start_run`, also for a tool named `launch_start_run`."""
    return f"{namespace}.{_without_prefix(namespace, tool)}"


def exposed_name(
    namespace: str, tool: str, mode: Mode, max_length: int = MAX_NAME_LENGTH, prefix_budget: int = PREFIX_BUDGET
) -> str:
    """The tool's name in lists of this mode."""
    match mode:
        case "bare":
            return tool
        case "dotted":
            return canonical(namespace, tool)
        case "underscore":
            return _underscore_name(namespace, tool, max_length - prefix_budget)


def collisions(
    namespace: str, tools: Iterable[str], max_length: int = MAX_NAME_LENGTH, prefix_budget: int = PREFIX_BUDGET
) -> set[str]:
    """The tools of one backend to quarantine, so that the others have unique exposed names and canonical ids.

    Of `x` and `namespace_x`, `namespace_x` stays. A literal name wins over a name with a digest. Of two equal names
    with digests, neither stays.
    """
    sharing: dict[str, set[str]] = {}
    for tool in tools:
        sharing.setdefault(_underscore_name(namespace, tool, max_length - prefix_budget), set()).add(tool)
    return {
        tool
        for name, group in sharing.items()
        if len(group) > 1
        for tool in group - _tool_to_keep(namespace, name, group)
    }


def _tool_to_keep(namespace: str, name: str, group: set[str]) -> set[str]:
    literal = {tool for tool in group if f"{namespace}_{_without_prefix(namespace, tool)}" == name}
    claims = literal or group
    kept = {tool for tool in claims if _without_prefix(namespace, tool) != tool} or claims
    return kept if len(kept) == 1 else set()


def _without_prefix(namespace: str, tool: str) -> str:
    """The tool's name without the namespace prefix. A name that consists of the prefix alone stays."""
    return tool.removeprefix(f"{namespace}_") or tool


def _underscore_name(namespace: str, tool: str, limit: int) -> str:
    if limit < MIN_NAME_LENGTH:
        raise ValueError(f"Names need at least {MIN_NAME_LENGTH} characters besides the client's prefix.")
    own = _without_prefix(namespace, tool)
    name = f"{namespace}_{own}"
    if len(name) <= limit and _ALLOWED.fullmatch(own):
        return name
    # The digest covers the canonical id, so that `x!` and `namespace_x!` collide like `x` and `namespace_x`.
    tail = sha256(canonical(namespace, tool).encode(errors="surrogatepass")).digest()
    clean = _DISALLOWED.sub("_", name)[: limit - _DIGEST_CHARS - 1]
    return f"{clean}_{b32encode(tail)[:_DIGEST_CHARS].decode().lower()}"


_SPLIT: Final = re.compile(rf"({NAMESPACE.pattern})[_.](.+)", re.DOTALL)
_ALLOWED: Final = re.compile(r"[A-Za-z0-9_-]+")
_DISALLOWED: Final = re.compile(r"[^A-Za-z0-9_-]")
