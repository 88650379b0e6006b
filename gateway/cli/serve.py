"""`gatehouse serve`: start the gateway."""

import asyncio
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import uvloop
from rich.console import Console

from gateway.app import Gatehouse
from gateway.cli.check import module_problems
from gateway.cli.configured import make_importable, read_settings
from gateway.cli.failure import BAD_SETTINGS, Failure, system_errors_explained
from gateway.cli.welcome import Welcome
from gateway.serving import listen
from gateway.serving import serve as serve_on
from gateway.settings import PREFIX, Settings, load
from gateway.telemetry.log import Lines, set_up
from gateway.upstream.load import LoadError


def serve(config: Path | None, host: str | None, port: int | None) -> None:
    given = {"HOST": host, "PORT": port}
    overrides = {f"{PREFIX}SERVER__{name}": str(value) for name, value in given.items() if value is not None}

    def reload() -> Settings:
        return load(config, {**os.environ, **overrides})

    settings = read_settings(config, {**os.environ, **overrides})
    make_importable(settings)
    if problems := list(module_problems(settings)):
        raise Failure(*problems, code=BAD_SETTINGS)
    set_up(settings.log.level, settings.log.format)
    with system_errors_explained(settings):
        bound = listen(settings)
        try:
            uvloop.run(_serve(settings, bound, reload))
        except LoadError as exc:
            raise Failure(str(exc), code=BAD_SETTINGS) from exc
        finally:
            bound.close()


async def _serve(settings: Settings, bound: socket.socket, reload: Callable[[], Settings]) -> None:
    loop = asyncio.get_running_loop()
    lines = Lines(sys.stderr, loop.call_later)
    house = await Gatehouse.open(settings, lines, bound.getsockname()[1])
    try:
        (await _welcome(house)).show(Console(highlight=False))
        await serve_on(house, bound, reload)
    finally:
        await house.close()
        lines.flush()


async def _welcome(house: Gatehouse) -> Welcome:
    """The first time also makes a key, which is never shown again."""
    settings = house.settings
    asked = settings.auth.mode != "none"
    key = None
    if asked and not await house.keys.list():
        key, _ = await house.keys.create("default", "owner", label="made at the first start")
    code = await house.identity.sign_in_code()
    return Welcome(f"{house.public_url}/mcp", asked, key, settings.source, settings.data_dir, code)
