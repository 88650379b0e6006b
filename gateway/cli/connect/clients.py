"""What each client wants to be told, and where it looks for it."""

import json
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from gateway.console import lines
from gateway.contract import Json

VARIABLE: Final = "GATEHOUSE_TOKEN"


@dataclass(frozen=True, slots=True)
class Wish:
    """What the user asked for."""

    name: str
    url: str
    key: bool = False
    """Whether it comes with a key instead of signing in."""
    token: str | None = None
    """The key itself, for a client that can name no variable."""


@dataclass(frozen=True, slots=True)
class Told:
    """What to run, or what to write where."""

    line: str = ""
    """A command that does it, where the client has one."""
    holder: str = ""
    """The key of the client's file under which servers stand."""
    entry: Json | None = None
    form: Literal["json", "toml"] = "json"
    inputs: Json | None = None
    """What VS Code asks for, once, and keeps for itself."""
    after: str = ""

    def text(self, name: str) -> str:
        """The entry as a file that holds nothing else."""
        if self.form == "toml":
            return table(name, self.entry or {})
        whole: Json = {self.holder: {name: self.entry}}
        return json.dumps(whole | ({"inputs": [self.inputs]} if self.inputs else {}), indent=2, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Client:
    title: str
    tell: Callable[[Wish], Told]
    file: Callable[[], Path] | None = None
    """Where it looks; None for one that keeps no file."""


def table(name: str, entry: Mapping[str, Any]) -> str:
    """A server as Codex has it in its TOML. A JSON string is a TOML string."""
    return "\n".join([f"[mcp_servers.{name}]", *(f"{key} = {json.dumps(value)}" for key, value in entry.items())])


def claude_code(wish: Wish) -> Told:
    header = f' --header "Authorization: Bearer ${VARIABLE}"' if wish.key else ""
    # In a project's file the variable is filled in by the client, so the file may be shared.
    entry: Json = {"type": "http", "url": wish.url} | _headers(wish, f"${{{VARIABLE}}}")
    return Told(
        lines.claude_code(wish.url, wish.name) + header,
        "mcpServers",
        entry,
        after="in Claude Code, /mcp shows it" if wish.key else "in Claude Code, /mcp shows it and signs you in",
    )


def claude_desktop(wish: Wish) -> Told:
    # Its file takes programs only, and it starts them without a shell: the path must be whole.
    command = shutil.which("gatehouse") or str(Path(sys.argv[0]).absolute())
    entry: Json = {"command": command, "args": ["stdio", "--url", wish.url]}
    if wish.key:
        entry["env"] = {VARIABLE: wish.token or "gth_..."}
    after = "start Claude Desktop again" if "env" in entry else "start Claude Desktop again, which opens the browser"
    return Told("", "mcpServers", entry, after=after)


def cursor(wish: Wish) -> Told:
    entry: Json = {"url": wish.url} | _headers(wish, f"${{env:{VARIABLE}}}")
    return Told("", "mcpServers", entry, after="Cursor shows it under Settings, MCP")


def vscode(wish: Wish) -> Told:
    input_id = f"{wish.name}-key"
    entry: Json = {"type": "http", "url": wish.url} | _headers(wish, f"${{input:{input_id}}}")
    asked: Json = {"id": input_id, "type": "promptString", "description": "Gatehouse key", "password": True}
    line = "" if wish.key else lines.vs_code(wish.url, wish.name)
    return Told(line, "servers", entry, inputs=asked if wish.key else None, after="VS Code offers to start it")


def codex(wish: Wish) -> Told:
    entry: Json = {"url": wish.url} | ({"bearer_token_env_var": VARIABLE} if wish.key else {})
    option = f" --bearer-token-env-var {VARIABLE}" if wish.key else ""
    line = f"codex mcp add {wish.name} --url {shlex.quote(wish.url)}{option}"
    after = "" if wish.key else f"codex mcp login {wish.name}"
    return Told(line, "mcp_servers", entry, "toml", after=after)


def inspector(wish: Wish) -> Told:
    header = f' --header "Authorization: Bearer ${VARIABLE}"'
    program = "npx @modelcontextprotocol/inspector --cli"
    return Told(f"{program} {shlex.quote(wish.url)} --transport http{header} --protocol-era modern --method tools/list")


def _headers(wish: Wish, variable: str) -> Json:
    return {"headers": {"Authorization": f"Bearer {variable}"}} if wish.key else {}


def _desktop_file() -> Path:
    name = Path("Claude") / "claude_desktop_config.json"
    match sys.platform:
        case "darwin":
            return Path.home() / "Library" / "Application Support" / name
        case "win32":
            return Path(os.environ.get("APPDATA", Path.home())) / name
        case _:
            return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / name


CLIENTS: Final[Mapping[str, Client]] = {
    "claude-code": Client("Claude Code", claude_code, lambda: Path(".mcp.json")),
    "claude-desktop": Client("Claude Desktop", claude_desktop, _desktop_file),
    "cursor": Client("Cursor", cursor, lambda: Path.home() / ".cursor" / "mcp.json"),
    "vscode": Client("VS Code", vscode, lambda: Path(".vscode") / "mcp.json"),
    "codex": Client("Codex", codex, lambda: Path.home() / ".codex" / "config.toml"),
    "inspector": Client("MCP Inspector", inspector),
}
