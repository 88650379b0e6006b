"""`gatehouse serve`: starts the gateway, or a supervisor with several workers, and prints the startup message."""

import asyncio
import gc
import os
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

import uvloop
from rich.console import Console

from gateway.app import Gateway
from gateway.cli.failure import BAD_SETTINGS, CommandError, explain_bind_errors, explain_system_errors
from gateway.cli.load_settings import add_module_paths
from gateway.cli.welcome import StartupMessage
from gateway.cli.workers import InheritedSockets, WorkerSupervisor, stop_with_parent, worker_command
from gateway.runner import Sockets, bind, listen
from gateway.runner import serve as serve_on
from gateway.settings import PREFIX, Settings, SettingsError, is_loopback, load
from gateway.telemetry.log import LogLines, configure_logging
from gateway.upstream.health import LoadError
from gateway.wiring.backends import find_load_errors


def serve(config: Path | None, host: str | None, port: int | None, workers: int | None, inherit: str | None) -> None:
    options = {"HOST": host, "PORT": port, "WORKERS": workers}
    overrides = {f"{PREFIX}SERVER__{name}": str(value) for name, value in options.items() if value is not None}

    def reload() -> Settings:
        return load(config, {**os.environ, **overrides})

    settings = _read(config, overrides)
    add_module_paths(settings)
    # Reports all errors before anything is opened; the start itself would stop at the first one.
    if errors := [settings.with_origin(error.setting_path, str(error)) for error in find_load_errors(settings)]:
        raise CommandError(*errors, code=BAD_SETTINGS)
    configure_logging(settings.log.level, settings.log.format, _backend_output(settings))
    with explain_system_errors(settings), ExitStack() as stack:
        sockets = _sockets(settings, inherit, stack)
        if settings.server.workers > 1 and inherit is None:
            _supervise(settings, sockets)
            return
        try:
            uvloop.run(_serve(settings, sockets, reload, inherit))
        except LoadError as exc:
            raise CommandError(settings.with_origin(exc.setting_path, str(exc)), code=BAD_SETTINGS) from exc


def _backend_output(settings: Settings) -> Path | None:
    """The file for the standard error of child processes; None unless it would scroll the startup message away."""
    on_terminal = sys.stderr.isatty() and settings.log.format == "text"
    return settings.data_dir / "logs" / "backends.log" if on_terminal else None


def _read(config: Path | None, overrides: Mapping[str, str]) -> Settings:
    """Load the settings. An error in an overriding option names the option, not the variable that carries it."""
    try:
        return load(config, {**os.environ, **overrides})
    except SettingsError as exc:
        lines = list(exc.lines)
        for name in overrides:
            option = f"--{name.removeprefix(f'{PREFIX}SERVER__').lower()}"
            lines = [line.replace(f"environment {name}: ", f"{option}: ", 1) for line in lines]
        raise CommandError(*lines, code=BAD_SETTINGS) from exc


def _sockets(settings: Settings, inherit: str | None, stack: ExitStack) -> Sockets:
    """Bind the sockets, or take over those of the supervisor that started this worker."""
    if inherit is not None:
        inherited = InheritedSockets.parse(inherit)
        main = stack.enter_context(socket.socket(fileno=inherited.main))
        ops = None if inherited.ops is None else stack.enter_context(socket.socket(fileno=inherited.ops))
        return Sockets(main, ops)
    server = settings.server
    with explain_bind_errors(server.host, server.port, "--port or GATEHOUSE__SERVER__PORT"):
        main = stack.enter_context(listen(settings))
    if server.ops_port is None:
        return Sockets(main)
    with explain_bind_errors(server.host, server.ops_port, "server.ops_port"):
        return Sockets(main, stack.enter_context(bind(server.host, server.ops_port)))


def _supervise(settings: Settings, sockets: Sockets) -> None:
    gc.enable()  # `gatehouse serve` disables it for the start of a worker

    async def run() -> int:
        return await WorkerSupervisor(worker_command(), settings.server.workers, sockets.main, sockets.ops).run()

    if code := asyncio.run(run()):
        raise CommandError("the workers could not be started; see the messages above", code=code)


async def _serve(settings: Settings, sockets: Sockets, reload: Callable[[], Settings], inherit: str | None) -> None:
    inherited = None if inherit is None else InheritedSockets.parse(inherit)
    if inherited is not None:
        stop_with_parent(inherited.parent)
    loop = asyncio.get_running_loop()
    lines = LogLines(sys.stderr, loop.call_later)
    gateway = await Gateway.open(settings, lines, sockets.main.getsockname()[1])
    try:
        if inherited is None or inherited.prints_startup:
            (await _startup_message(gateway)).show(Console(highlight=False))
        await serve_on(gateway, sockets, reload)
    finally:
        await gateway.close()
        lines.flush()


async def _startup_message(gateway: Gateway) -> StartupMessage:
    """Build the startup message. The first start on a loopback address also creates an API key; elsewhere the printed
    key could end up in a log."""
    settings = gateway.settings
    auth_required = settings.auth.mode != "none"
    key = None
    if auth_required and is_loopback(settings.server.host) and not await gateway.keys.list():
        key, _ = await gateway.keys.create("default", "owner", label="created at the first start")
    code = await gateway.identity.create_sign_in_code()
    return StartupMessage(
        f"{gateway.public_url}/mcp",
        auth_required,
        key,
        settings.source,
        settings.data_dir,
        code,
        gateway.console_url,
        _backend_output(settings),
    )
