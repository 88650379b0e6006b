"""`gatehouse serve`: start the gateway."""

import asyncio
import os
import socket
import sys
from collections.abc import Callable
from typing import Annotated

import typer
import uvloop
from rich.console import Console

from gateway.app import Gatehouse
from gateway.cli.failure import Failure, system_errors_explained
from gateway.cli.options import Config, make_importable
from gateway.serving import listen
from gateway.serving import serve as serve_on
from gateway.settings import PREFIX, Settings, load
from gateway.telemetry.log import Lines, set_up
from gateway.upstream.load import LoadError

Host = Annotated[str | None, typer.Option("--host", help="Address to listen on, instead of server.host.")]
Port = Annotated[
    int | None, typer.Option("--port", min=0, max=65535, help="Port to listen on, instead of server.port; 0: any free.")
]


def command(config: Config = None, host: Host = None, port: Port = None) -> None:
    """Serve what the settings say, until stopped."""
    given = {"HOST": host, "PORT": port}
    overrides = {f"{PREFIX}SERVER__{name}": str(value) for name, value in given.items() if value is not None}

    def read() -> Settings:
        return load(config, {**os.environ, **overrides})

    settings = read()
    make_importable(settings)
    set_up(settings.log.level, settings.log.format)
    with system_errors_explained(settings):
        bound = listen(settings)
        try:
            uvloop.run(_serve(settings, bound, read))
        except LoadError as exc:
            raise Failure(str(exc)) from exc
        finally:
            bound.close()


async def _serve(settings: Settings, bound: socket.socket, read: Callable[[], Settings]) -> None:
    loop = asyncio.get_running_loop()
    lines = Lines(sys.stderr, loop.call_later)
    house = await Gatehouse.open(settings, lines)
    try:
        await _announce(house, bound.getsockname()[1])
        await serve_on(house, bound, read)
    finally:
        await house.close()
        lines.flush()


async def _announce(house: Gatehouse, port: int) -> None:
    """Where it is, and how to reach it; the first time also a key, which is never shown again."""
    settings = house.settings
    url = f"{settings.server.public_url_at(port)}/mcp"
    console = Console(stderr=False, highlight=False, soft_wrap=True)
    console.print(f"[bold]Gatehouse[/] serves [bold cyan]{url}[/]")
    if settings.auth.mode == "none":
        console.print("Nobody is asked for a credential (auth.mode: none).")
        console.print(f"  claude mcp add --transport http gatehouse {url}")
        return
    if await house.keys.list():
        console.print("A further key: gatehouse key create --tenant default --subject NAME")
        return
    key, _ = await house.keys.create("default", "owner", label="made at the first start")
    console.print(f"Your key, shown this once:  [bold]{key}[/]")
    console.print("Connect a client:")
    console.print(f"  claude mcp add --transport http gatehouse {url} --header 'Authorization: Bearer {key}'")
