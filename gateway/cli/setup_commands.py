"""What can be typed to get started, to connect a client, and to find out what is wrong.

The demos there are. Each is a module of its backend, loaded by name when it is asked for.
"""

from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.commands import Token, Url, endpoint_of
from gateway.cli.failure import CommandError
from gateway.cli.options import AsJson, Config


def init(
    config: Config = None,
    address: Annotated[str | None, typer.Option("--address", help="Address that clients will use.")] = None,
    sign_in: Annotated[
        str | None, typer.Option("--sign-in", help="embedded, or the address of your identity provider.")
    ] = None,
    serve: Annotated[str | None, typer.Option("--serve", help="Backends that ship, with commas between.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Take the default where nothing is given; ask nothing.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there; it is kept.")] = False,
) -> None:
    """Ask three questions and write a settings file with comments."""
    from gateway.cli.init import init

    init(config, address, sign_in, serve, yes=yes, force=force)


def doctor(config: Config = None, as_json: AsJson = False) -> None:
    """Look at everything a gateway relies on, and say how to mend what is wrong."""
    from gateway.cli.doctor.command import doctor

    doctor(config, as_json)


def clients_named(incomplete: str) -> list[str]:
    """For the shell to complete."""
    from gateway.cli.client_config import CLIENTS

    return [name for name in CLIENTS if name.startswith(incomplete)]


def connect(
    client: Annotated[
        str,
        typer.Argument(
            metavar="CLIENT",
            help="claude-code, claude-desktop, cursor, vscode, codex or inspector.",
            autocompletion=clients_named,
        ),
    ],
    config: Config = None,
    url: Url = None,
    name: Annotated[str, typer.Option("--name", help="What the client calls it.")] = "gatehouse",
    key: Annotated[bool, typer.Option("--key", help="With the key in GATEHOUSE_TOKEN, instead of signing in.")] = False,
    token: Annotated[str | None, typer.Option("--token", help="With this key, instead of signing in.")] = None,
    write: Annotated[bool, typer.Option("--write", help="Write it into the client's file; keeps the old one.")] = False,
    file: Annotated[Path | None, typer.Option("--file", help="That file, if it is not where it usually is.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print what connects an MCP client, or write it into the client's own file."""
    import os
    import re

    from gateway.cli.client_config import CLIENTS, VARIABLE, ConnectRequest
    from gateway.cli.connect import connect

    if client not in CLIENTS:
        raise CommandError(f"no client is named {client} (known: {', '.join(CLIENTS)})", code=2)
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name):
        raise CommandError("--name may have letters, digits, _ and -", code=2)
    # A key lies in the environment for other commands too: it goes to a client only where that was asked for.
    given = token or (os.environ.get(VARIABLE) if key else None)
    wish = ConnectRequest(name, endpoint_of(url, config), key or token is not None, given)
    connect(client, wish, file, writing=write, as_json=as_json)


def stdio(
    url: Url = None,
    token: Token = None,
    client_id: Annotated[
        str | None,
        typer.Option("--client-id", envvar="GATEHOUSE_CLIENT_ID", help="OAuth client to sign in with, if it has one."),
    ] = None,
    client_secret: Annotated[
        str | None, typer.Option("--client-secret", envvar="GATEHOUSE_CLIENT_SECRET", help="Its secret, if it has one.")
    ] = None,
    client_document: Annotated[
        str | None,
        typer.Option(
            "--client-document", envvar="GATEHOUSE_CLIENT_DOCUMENT", help="Address of a client document (CIMD) instead."
        ),
    ] = None,
    callback_port: Annotated[
        int, typer.Option("--callback-port", min=0, max=65535, help="Where the browser comes back to; 0: any free.")
    ] = 0,
    config: Config = None,
) -> None:
    """Be an MCP server on the standard streams, for clients that can only start a program.

    Without a key it signs you in: it opens the browser, and keeps what it is given for the next time.
    """
    from gateway.cli.signin.credential import ClientRegistration
    from gateway.cli.stdio.server import stdio

    program = ClientRegistration(client_id or None, client_secret or None, client_document or None, callback_port)
    if problem := program.problem():
        raise CommandError(problem, code=2)
    stdio(endpoint_of(url, config), token, program)


Folder = Annotated[
    Path | None,
    typer.Option("--folder", metavar="FOLDER", help="Keep all that is made in this new folder, to look at it."),
]

demos = typer.Typer(help="Show a backend at work, on a gateway of its own.")


@demos.command()
def launch(folder: Folder = None, as_json: AsJson = False) -> None:
    """Take a small product's repository from nothing to a pull request."""
    _show("backends.launch.demo", folder, as_json)


@demos.command()
def roblox(folder: Folder = None, as_json: AsJson = False) -> None:
    """Plant a small wood in a Studio without a screen, by the real Studio plugin."""
    _show("backends.roblox.demo", folder, as_json)


@demos.command()
def godot(
    engine: Annotated[
        str | None,
        typer.Option("--engine", metavar="PROGRAM", envvar="GODOT_PATH", help="The Godot 4 to use; else that on PATH."),
    ] = None,
    folder: Folder = None,
    as_json: AsJson = False,
) -> None:
    """Make a small game from an empty folder, and run it on a real Godot engine."""
    _show("backends.godot.demo", folder, as_json, engine=engine)


def _show(module: str, folder: Path | None, as_json: bool, **given: str | None) -> None:
    from gateway.cli.demo_runner import show
    from gateway.telemetry.log import set_up

    # The gateway's own lines stay out of the picture.
    set_up("error", "text")
    show(module, folder, as_json, **given)
