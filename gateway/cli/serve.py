"""What `serve` says when it has started: where it is, how to reach it, and where its things are.

`gatehouse serve`: start the gateway.
"""

import asyncio
import json
import os
import shlex
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop
from rich.console import Console
from rich.text import Text

from gateway.app import Gatehouse
from gateway.cli.client_config import ConnectRequest, claude_code, cursor, vscode
from gateway.cli.failure import BAD_SETTINGS, CommandError, listening_explained, system_errors_explained
from gateway.cli.load_settings import make_importable
from gateway.cli.workers import InheritedSockets, WorkerSupervisor, command, leave_with_parent
from gateway.runner import Sockets, listen, listen_at
from gateway.runner import serve as serve_on
from gateway.settings import PREFIX, Settings, SettingsError, is_loopback, load
from gateway.telemetry.log import LogLines, set_up
from gateway.upstream.health import LoadError
from gateway.wiring.backends import backend_refusals


@dataclass(frozen=True, slots=True)
class StartupMessage:
    """The facts of one start."""

    url: str
    asked: bool
    """Whether callers are asked for a credential."""
    key: str | None
    """A key made just now: it is shown here and nowhere else."""
    source: Path | None
    data: Path
    code: str | None = None
    """What a browser of this machine signs in with, once."""
    console: str | None = None
    """The operator's page."""

    def show(self, console: Console) -> None:
        say = _Paper(console)
        say.line(("Gatehouse", "bold"), " serves ", (self.url, "bold cyan"))
        say.line()
        if self.console is not None:
            say.fact("Console", (self.console, "cyan"))
        if self.code is not None:
            say.fact("Sign in", (self.code, "bold green"))
            say.fact("", ("good once, in the console or in the browser that your client opens", "dim"))
        if self.key is not None:
            say.fact("Your key", (self.key, "bold green"))
            say.fact("", ("for scripts and clients without a browser; shown this once, keep it", "dim"))
        elif self.asked:
            say.fact("A key", self._make_a_key())
        else:
            say.fact("Keys", "nobody is asked for one (auth.mode: none)")
        say.fact("Settings", str(self.source.absolute()) if self.source else "the defaults")
        say.fact("Data", str(self.data.absolute()))
        say.line()
        say.line(("Connect a client", "bold"))
        wish = ConnectRequest("gatehouse", self.url)
        say.step("Claude Code", claude_code(wish).line)
        say.step("Cursor, in ~/.cursor/mcp.json", _compact({"mcpServers": {wish.name: cursor(wish).entry}}))
        say.step("VS Code", vscode(wish).line)
        say.step("Others, or into their own files", "gatehouse connect --help")
        say.line()
        say.line(("Ctrl-C stops it.", "dim"))

    def _make_a_key(self) -> str:
        config = f" --config {shlex.quote(str(self.source))}" if self.source else ""
        return f"gatehouse key create{config} --tenant default --subject NAME"


class _Paper:
    """Lines as they are: nothing in them is markup, and none is broken, so that what is copied is whole."""

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


def serve(config: Path | None, host: str | None, port: int | None, workers: int | None, inherit: str | None) -> None:
    given = {"HOST": host, "PORT": port, "WORKERS": workers}
    overrides = {f"{PREFIX}SERVER__{name}": str(value) for name, value in given.items() if value is not None}

    def reload() -> Settings:
        return load(config, {**os.environ, **overrides})

    settings = _read(config, overrides)
    make_importable(settings)
    # Before anything is opened, and each of them: a start would end at the first.
    if refused := [settings.placed(refusal.at, str(refusal)) for refusal in backend_refusals(settings)]:
        raise CommandError(*refused, code=BAD_SETTINGS)
    set_up(settings.log.level, settings.log.format)
    with system_errors_explained(settings), ExitStack() as stack:
        sockets = _sockets(settings, inherit, stack)
        if settings.server.workers > 1 and inherit is None:
            _supervise(settings, sockets)
            return
        try:
            uvloop.run(_serve(settings, sockets, reload, inherit))
        except LoadError as exc:
            raise CommandError(settings.placed(exc.at, str(exc)), code=BAD_SETTINGS) from exc


def _read(config: Path | None, overrides: Mapping[str, str]) -> Settings:
    """What an option says is told by its name, though it is read as its variable."""
    try:
        return load(config, {**os.environ, **overrides})
    except SettingsError as exc:
        lines = list(exc.lines)
        for name in overrides:
            option = f"--{name.removeprefix(f'{PREFIX}SERVER__').lower()}"
            lines = [line.replace(f"environment {name}: ", f"{option}: ", 1) for line in lines]
        raise CommandError(*lines, code=BAD_SETTINGS) from exc


def _sockets(settings: Settings, inherit: str | None, stack: ExitStack) -> Sockets:
    """Bound here, or by the process that started this worker."""
    if inherit is not None:
        given = InheritedSockets.parse(inherit)
        main = stack.enter_context(socket.socket(fileno=given.main))
        ops = None if given.ops is None else stack.enter_context(socket.socket(fileno=given.ops))
        return Sockets(main, ops)
    server = settings.server
    with listening_explained(server.host, server.port, "--port or GATEHOUSE__SERVER__PORT"):
        main = stack.enter_context(listen(settings))
    if server.ops_port is None:
        return Sockets(main)
    with listening_explained(server.host, server.ops_port, "server.ops_port"):
        return Sockets(main, stack.enter_context(listen_at(server.host, server.ops_port)))


def _supervise(settings: Settings, sockets: Sockets) -> None:
    async def run() -> int:
        return await WorkerSupervisor(command(), settings.server.workers, sockets.main, sockets.ops).run()

    if code := asyncio.run(run()):
        raise CommandError("the workers could not be started", code=code)


async def _serve(settings: Settings, sockets: Sockets, reload: Callable[[], Settings], inherit: str | None) -> None:
    given = None if inherit is None else InheritedSockets.parse(inherit)
    if given is not None:
        leave_with_parent(given.parent)
    loop = asyncio.get_running_loop()
    lines = LogLines(sys.stderr, loop.call_later)
    house = await Gatehouse.open(settings, lines, sockets.main.getsockname()[1])
    try:
        if given is None or given.loud:
            (await _welcome(house)).show(Console(highlight=False))
        await serve_on(house, sockets, reload)
    finally:
        await house.close()
        lines.flush()


async def _welcome(house: Gatehouse) -> StartupMessage:
    """The first time also makes a key, never shown again: on this machine only, for elsewhere it would lie in a log."""
    settings = house.settings
    asked = settings.auth.mode != "none"
    key = None
    if asked and is_loopback(settings.server.host) and not await house.keys.list():
        key, _ = await house.keys.create("default", "owner", label="made at the first start")
    code = await house.identity.sign_in_code()
    return StartupMessage(
        f"{house.public_url}/mcp", asked, key, settings.source, settings.data_dir, code, house.console_url
    )
