"""OpenTelemetry's semantic conventions for MCP as a table: the exact attributes of a span for one request.

Derived from the conventions, not from the implementation: one row per attribute, with the condition that sets it.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

MODERN = "2026-07-28"


@dataclass(frozen=True, kw_only=True)
class Situation:
    """One request from the point of view of its sender (client) or receiver (server)."""

    kind: Literal["server", "client"]
    method: str = "tools/call"
    version: str = MODERN
    target: str | None = None
    """The tool or prompt."""
    uri: str | None = None
    request_id: str | None = "1"
    session: str | None = None
    transport: Literal["tcp", "pipe"] = "tcp"
    client: tuple[str, int] | None = None
    server: tuple[str, int] | None = None
    error: str | None = None
    """The error type, if the outcome counts as an error."""
    code: int | None = None
    arguments: str | None = None
    """Set only if the tenant has opted in."""
    result: str | None = None

    @property
    def http(self) -> bool:
        return self.transport == "tcp"

    @property
    def is_about_prompt(self) -> bool:
        return self.method in ("prompts/get", "completion/complete")


Row = tuple[str, Callable[[Situation], Any]]

TABLE: tuple[Row, ...] = (
    # attribute, function that returns its value; None means not set
    ("mcp.method.name", lambda at: at.method),
    ("error.type", lambda at: at.error),
    ("rpc.response.status_code", lambda at: str(at.code) if at.code is not None else None),
    ("gen_ai.tool.name", lambda at: at.target if at.method == "tools/call" else None),
    ("gen_ai.prompt.name", lambda at: at.target if at.is_about_prompt else None),
    ("gen_ai.operation.name", lambda at: "execute_tool" if at.method == "tools/call" else None),
    ("jsonrpc.request.id", lambda at: at.request_id),
    ("jsonrpc.protocol.version", lambda at: None),  # only if it is not 2.0
    ("mcp.protocol.version", lambda at: at.version),
    ("mcp.session.id", lambda at: at.session if at.version < MODERN else None),
    ("mcp.resource.uri", lambda at: at.uri),
    ("network.transport", lambda at: at.transport),
    ("network.protocol.name", lambda at: "http" if at.http else None),
    ("network.protocol.version", lambda at: "1.1" if at.http else None),
    ("server.address", lambda at: at.server[0] if at.kind == "client" and at.server else None),
    ("server.port", lambda at: at.server[1] if at.kind == "client" and at.server else None),
    ("client.address", lambda at: at.client[0] if at.kind == "server" and at.client else None),
    ("client.port", lambda at: at.client[1] if at.kind == "server" and at.client else None),
    ("gen_ai.tool.call.arguments", lambda at: at.arguments),
    ("gen_ai.tool.call.result", lambda at: at.result),
)


def expected_attributes(at: Situation) -> dict[str, Any]:
    """Return all attributes of the span, except those of the gateway itself."""
    return {attribute: value for attribute, row in TABLE if (value := row(at)) is not None}


def expected_name(at: Situation) -> str:
    """Return the span name: `{mcp.method.name} {target}`, without URIs."""
    return f"{at.method} {at.target}" if at.target is not None else at.method


def without_gatehouse_attributes(attributes: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    return {key: value for key, value in attributes if not key.startswith("gatehouse.")}
