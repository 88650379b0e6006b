"""Commands and configuration entries that connect MCP clients; used by the console and by `gatehouse serve`."""

import json
import shlex
from typing import Any


def claude_code(url: str, name: str = "gatehouse") -> str:
    return f"claude mcp add --transport http {name} {shlex.quote(url)}"


def cursor(url: str, name: str = "gatehouse") -> str:
    return _compact({"mcpServers": {name: {"url": url}}})


def vs_code(url: str, name: str = "gatehouse") -> str:
    return f"code --add-mcp {shlex.quote(_compact({'name': name, 'type': 'http', 'url': url}))}"


def with_key(url: str, name: str = "gatehouse") -> str:
    """For clients without a browser."""
    return _compact({"mcpServers": {name: {"url": url, "headers": {"Authorization": "Bearer gth_..."}}}})


def _compact(value: dict[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
