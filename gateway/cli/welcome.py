"""The message that `gatehouse serve` prints after a start; `gatehouse welcome` prints it again."""

import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rich.console import Console
from rich.text import Text

from gateway.cli.client_config import ConnectRequest, claude_code, cursor, vscode
from gateway.cli.failure import CommandError
from gateway.settings import Settings, is_loopback


@dataclass(frozen=True, slots=True)
class StartupMessage:
    """The message that `gatehouse serve` prints after a start."""

    url: str
    auth_required: bool
    """Whether callers must authenticate."""
    key: str | None
    """An API key created at this start; it is shown only here."""
    source: Path | None
    data: Path
    code: str | None = None
    """One-time code for signing in with a browser on this machine."""
    console: str | None = None
    """URL of the operator console."""
    backend_output: Path | None = None
    """File with the standard error of child processes, if it is not part of the log."""
    running: bool = True
    """Whether this process serves the gateway, so that Ctrl-C stops it."""

    def show(self, console: Console) -> None:
        out = _Printer(console)
        out.line(("Gatehouse", "bold"), " serves ", (self.url, "bold cyan"))
        out.line()
        if self.console is not None:
            out.fact("Console", (self.console, "cyan"))
        if self.code is not None:
            out.fact("Sign in", (self.code, "bold green"))
            out.fact("", ("one-time code for the console or the browser that your client opens", "dim"))
        if self.key is not None:
            out.fact("API key", (self.key, "bold green"))
            out.fact("", ("for scripts and clients without a browser; shown only once", "dim"))
        elif self.auth_required:
            out.fact("API key", self._key_command())
        else:
            out.fact("API key", "not required (auth.mode: none)")
        out.fact("Settings", str(self.source.absolute()) if self.source else "defaults")
        out.fact("Data", str(self.data.absolute()))
        if self.backend_output is not None:
            out.fact("Output", str(self.backend_output.absolute()))
            out.fact("", ("what the processes behind the gateway print", "dim"))
        out.line()
        out.line(("Connect a client", "bold"))
        request = ConnectRequest("gatehouse", self.url)
        out.step("Claude Code", claude_code(request).command)
        out.step("Cursor, in ~/.cursor/mcp.json", _compact({"mcpServers": {request.name: cursor(request).entry}}))
        out.step("VS Code", vscode(request).command)
        out.step("Other clients", "gatehouse connect --help")
        if self.running:
            out.line()
            out.line(("Press Ctrl-C to stop.", "dim"))

    def as_json(self) -> dict[str, str | None]:
        """The message for scripts."""
        return {
            "url": self.url,
            "console": self.console,
            "sign_in_code": self.code,
            "settings": str(self.source.absolute()) if self.source else None,
            "data": str(self.data.absolute()),
        }

    def _key_command(self) -> str:
        config = f" --config {shlex.quote(str(self.source))}" if self.source else ""
        return f"gatehouse key create{config} --tenant default --subject NAME"


class _Printer:
    """Prints lines without markup and without wrapping, so that they can be copied."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def line(self, *parts: str | tuple[str, str]) -> None:
        self._console.print(Text.assemble(*parts), soft_wrap=True)

    def fact(self, name: str, value: str | tuple[str, str]) -> None:
        self.line(f"  {name:<10}", value)

    def step(self, name: str, value: str) -> None:
        self.line(f"  {name}")
        self.line("    ", (value, "cyan"))


def _compact(value: dict[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def welcome(config: Path | None, as_json: bool) -> None:
    """Print the message again: without the API key, of which only a digest is stored, and with a new sign-in code."""
    from gateway.auth.browser_sessions import BrowserSessions
    from gateway.auth.users import LOCAL_OWNER, Users
    from gateway.cli.identity_db import IdentityDatabase, with_identity_database
    from gateway.cli.load_settings import read_settings_leniently

    async def create_code(identity: IdentityDatabase) -> str:
        if not await Users(identity.database, identity.revocations).exists(*LOCAL_OWNER):
            raise CommandError("the gateway has not been started with this data_dir yet; run `gatehouse serve`")
        return await BrowserSessions(identity.database).new_code(LOCAL_OWNER)

    settings = read_settings_leniently(config)
    code = with_identity_database(config, create_code) if _has_local_owner(settings) else None
    public_url = settings.server.public_url_at(settings.server.port)
    console = f"{settings.server.operators_url(public_url)}/console" if settings.console.enabled else None
    message = StartupMessage(
        f"{public_url}/mcp",
        settings.auth.mode != "none",
        None,
        settings.source,
        settings.data_dir,
        code,
        console,
        running=False,
    )
    if as_json:
        print(json.dumps(message.as_json()))
    else:
        message.show(Console(highlight=False))


def _has_local_owner(settings: Settings) -> bool:
    """Whether the gateway listens on loopback only and signs in its own users, as `Identity` decides it."""
    server = settings.server
    host = urlsplit(server.public_url_at(server.port)).hostname or ""
    return settings.auth.mode == "embedded" and is_loopback(server.host) and is_loopback(host)
