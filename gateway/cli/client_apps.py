"""The MCP clients that `gatehouse connect` knows: the entry of each, and the location of its file."""

import os
import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gateway.cli.client_config import (
    VARIABLE,
    ConnectInstructions,
    ConnectRequest,
    claude_code,
    claude_desktop,
    codex,
    cursor,
    inspector,
    vscode,
)
from gateway.contract import Json


@dataclass(frozen=True, slots=True)
class ClientApp:
    title: str
    instructions: Callable[[ConnectRequest], ConnectInstructions]
    file: Callable[[], Path] | None = None
    """Location of its configuration file; None if it has none."""
    needs_token: bool = False
    """Whether its file must contain the key itself, because the client expands no variables."""


def gemini_cli(request: ConnectRequest) -> ConnectInstructions:
    entry: Json = {"type": "http", "url": request.url} | _headers(request, f"${VARIABLE}")
    header = f' -H "Authorization: Bearer ${VARIABLE}"' if request.key else ""
    line = f"gemini mcp add --transport http {request.name} {shlex.quote(request.url)}{header}"
    return ConnectInstructions(line, "mcpServers", entry, next_step="check it with /mcp in Gemini CLI")


def opencode(request: ConnectRequest) -> ConnectInstructions:
    entry: Json = {"type": "remote", "url": request.url, "enabled": True} | _headers(request, f"{{env:{VARIABLE}}}")
    next_step = "" if request.key else f"run opencode mcp auth {request.name}"
    return ConnectInstructions("", "mcp", entry, next_step=next_step)


def windsurf(request: ConnectRequest) -> ConnectInstructions:
    entry: Json = {"serverUrl": request.url} | _headers(request, f"${{env:{VARIABLE}}}")
    return ConnectInstructions("", "mcpServers", entry, next_step="refresh the servers in Windsurf")


def zed(request: ConnectRequest) -> ConnectInstructions:
    entry: Json = {"source": "custom", "type": "http", "url": request.url} | _headers(request, _key_text(request))
    return ConnectInstructions("", "context_servers", entry, next_step="check it in Zed's agent panel")


def cline(request: ConnectRequest) -> ConnectInstructions:
    entry: Json = {"type": "streamableHttp", "url": request.url} | _headers(request, _key_text(request))
    return ConnectInstructions("", "mcpServers", entry, next_step="check it in Cline under MCP Servers")


def goose(request: ConnectRequest) -> ConnectInstructions:
    entry: Json = {
        "enabled": True,
        "type": "streamable_http",
        "name": request.name,
        "uri": request.url,
        "timeout": 300,
    } | _headers(request, f"${{{VARIABLE}}}")
    if request.key:
        entry["env_keys"] = [VARIABLE]
    return ConnectInstructions("", "extensions", entry, "yaml", next_step="start a new session of Goose")


def continue_dev(request: ConnectRequest) -> ConnectInstructions:
    entry: Json = {"name": request.name, "type": "streamable-http", "url": request.url}
    if request.key:
        entry["requestOptions"] = _headers(request, f"${{{{ secrets.{VARIABLE} }}}}")
    head: Json = {"name": request.name, "version": "0.0.1", "schema": "v1"}
    return ConnectInstructions("", "mcpServers", entry, "yaml-list", head=head, next_step="reload Continue")


def jetbrains(request: ConnectRequest) -> ConnectInstructions:
    entry: Json = {"url": request.url} | _headers(request, _key_text(request))
    step = "AI Assistant: paste it under Settings, Tools, AI Assistant, Model Context Protocol; Junie reads the file"
    return ConnectInstructions("", "mcpServers", entry, next_step=step)


def librechat(request: ConnectRequest) -> ConnectInstructions:
    entry: Json = {"type": "streamable-http", "url": request.url} | _headers(request, f"${{{VARIABLE}}}")
    return ConnectInstructions("", "mcpServers", entry, "yaml", next_step="restart LibreChat")


def _headers(request: ConnectRequest, key: str) -> Json:
    return {"headers": {"Authorization": f"Bearer {key}"}} if request.key else {}


def _key_text(request: ConnectRequest) -> str:
    return request.token or "gth_..."


def _application_folder() -> Path:
    """The folder in which desktop programs keep their settings."""
    match sys.platform:
        case "darwin":
            return Path.home() / "Library" / "Application Support"
        case "win32":
            return Path(os.environ.get("APPDATA", Path.home()))
        case _:
            return _config_folder()


def _config_folder() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")


def _cline_file() -> Path:
    storage = Path("Code", "User", "globalStorage", "saoudrizwan.claude-dev", "settings")
    return _application_folder() / storage / "cline_mcp_settings.json"


CLIENTS: Final[Mapping[str, ClientApp]] = {
    "claude-code": ClientApp("Claude Code", claude_code, lambda: Path(".mcp.json")),
    "claude-desktop": ClientApp(
        "Claude Desktop",
        claude_desktop,
        lambda: _application_folder() / "Claude" / "claude_desktop_config.json",
        needs_token=True,
    ),
    "cursor": ClientApp("Cursor", cursor, lambda: Path.home() / ".cursor" / "mcp.json"),
    "vscode": ClientApp("VS Code", vscode, lambda: Path(".vscode") / "mcp.json"),
    "codex": ClientApp("Codex", codex, lambda: Path.home() / ".codex" / "config.toml"),
    "gemini-cli": ClientApp("Gemini CLI", gemini_cli, lambda: Path.home() / ".gemini" / "settings.json"),
    "opencode": ClientApp("opencode", opencode, lambda: _config_folder() / "opencode" / "opencode.json"),
    "windsurf": ClientApp("Windsurf", windsurf, lambda: Path.home() / ".codeium" / "windsurf" / "mcp_config.json"),
    "zed": ClientApp("Zed", zed, lambda: _config_folder() / "zed" / "settings.json", needs_token=True),
    "cline": ClientApp("Cline", cline, _cline_file, needs_token=True),
    "goose": ClientApp("Goose", goose, lambda: _config_folder() / "goose" / "config.yaml"),
    "continue": ClientApp("Continue", continue_dev, lambda: Path(".continue") / "mcpServers" / "gatehouse.yaml"),
    "jetbrains": ClientApp("JetBrains", jetbrains, lambda: Path(".junie") / "mcp" / "mcp.json", needs_token=True),
    "librechat": ClientApp("LibreChat", librechat, lambda: Path("librechat.yaml")),
    "inspector": ClientApp("MCP Inspector", inspector),
}
