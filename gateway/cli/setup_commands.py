"""Declarations of `gatehouse init`, `doctor`, `connect`, `stdio` and `demo`. Implementations are imported on use."""

from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.commands import Token, Url, resolve_endpoint
from gateway.cli.failure import CommandError
from gateway.cli.options import AsJson, Config
from gateway.contract.shipped import ShippedDemo, shipped_backends


def init(
    config: Config = None,
    address: Annotated[str | None, typer.Option("--address", help="URL that clients use.")] = None,
    sign_in: Annotated[
        str | None, typer.Option("--sign-in", help="embedded, or the URL of your identity provider.")
    ] = None,
    serve: Annotated[str | None, typer.Option("--serve", help="Built-in backends, comma-separated.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Use the defaults; ask no questions.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file; keep a backup.")] = False,
) -> None:
    """Ask three questions and write a commented settings file."""
    from gateway.cli.init import init

    init(config, address, sign_in, serve, yes=yes, force=force)


def doctor(config: Config = None, as_json: AsJson = False) -> None:
    """Check everything the gateway depends on and suggest a fix for each problem."""
    from gateway.cli.doctor.command import doctor

    doctor(config, as_json)


def complete_client(incomplete: str) -> list[str]:
    """Client names for shell completion."""
    from gateway.cli.client_apps import CLIENTS

    return [name for name in CLIENTS if name.startswith(incomplete)]


def connect(
    client: Annotated[
        str,
        typer.Argument(
            metavar="CLIENT",
            help="claude-code, claude-desktop, cursor, vscode, codex, gemini-cli, opencode, windsurf, zed, cline,"
            " goose, continue, jetbrains, librechat or inspector.",
            autocompletion=complete_client,
        ),
    ],
    config: Config = None,
    url: Url = None,
    name: Annotated[str, typer.Option("--name", help="Name of the server entry in the client.")] = "gatehouse",
    key: Annotated[
        bool, typer.Option("--key", help="Authenticate with the key in GATEHOUSE_TOKEN instead of OAuth.")
    ] = False,
    token: Annotated[str | None, typer.Option("--token", help="Authenticate with this key instead of OAuth.")] = None,
    write: Annotated[
        bool, typer.Option("--write", help="Write the entry into the client's file; keep a backup.")
    ] = False,
    file: Annotated[
        Path | None, typer.Option("--file", help="Configuration file of the client, if not in the default location.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the command or entry that connects an MCP client, or write it into the client's configuration file."""
    import os
    import re

    from gateway.cli.client_apps import CLIENTS
    from gateway.cli.client_config import VARIABLE, ConnectRequest
    from gateway.cli.connect import connect

    if client not in CLIENTS:
        raise CommandError(f"unknown client {client} (known: {', '.join(CLIENTS)})", code=2)
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name):
        raise CommandError("--name allows only letters, digits, _ and -, at most 64", code=2)
    # The variable may be set for other commands; the key is written for a client only with --key.
    api_key = token or (os.environ.get(VARIABLE) if key else None)
    request = ConnectRequest(name, resolve_endpoint(url, config), key or token is not None, api_key)
    connect(client, request, file, write_file=write, as_json=as_json)


def stdio(
    url: Url = None,
    token: Token = None,
    client_id: Annotated[
        str | None,
        typer.Option("--client-id", envvar="GATEHOUSE_CLIENT_ID", help="ID of a pre-registered OAuth client."),
    ] = None,
    client_secret: Annotated[
        str | None, typer.Option("--client-secret", envvar="GATEHOUSE_CLIENT_SECRET", help="Secret of that client.")
    ] = None,
    client_document: Annotated[
        str | None,
        typer.Option(
            "--client-document", envvar="GATEHOUSE_CLIENT_DOCUMENT", help="URL of a client metadata document (CIMD)."
        ),
    ] = None,
    callback_port: Annotated[
        int, typer.Option("--callback-port", min=0, max=65535, help="Port of the OAuth callback; 0: any free port.")
    ] = 0,
    config: Config = None,
) -> None:
    """Run an MCP server on standard input and output, for clients that support only stdio.

    Without a key it opens the browser to sign you in and stores the tokens for the next start.
    """
    from gateway.cli.signin.credential import ClientRegistration
    from gateway.cli.stdio.server import stdio

    registration = ClientRegistration(client_id or None, client_secret or None, client_document or None, callback_port)
    if problem := registration.problem():
        raise CommandError(problem, code=2)
    stdio(resolve_endpoint(url, config), token, registration)


Folder = Annotated[
    Path | None,
    typer.Option("--folder", metavar="FOLDER", help="Keep the files of the demo in this new folder."),
]

demos = typer.Typer(help="Run the demo of a backend on a temporary gateway.")


def _add_demo(name: str, demo: ShippedDemo) -> None:
    """Register `gatehouse demo NAME` with the options that the demo declares."""

    def command(folder: Path | None, as_json: bool, **options: str | None) -> None:
        _run_demo(demo.module, folder, as_json, **options)

    declared = {
        each.name: Annotated[
            str | None,
            typer.Option(f"--{each.name}", metavar=each.metavar, envvar=each.variable, help=each.help),
        ]
        for each in demo.options
    }
    annotations = {**declared, "folder": Folder, "as_json": AsJson}
    defaults = {name: False if name == "as_json" else None for name in annotations}
    # Typer reads the options of a command from its signature.
    command.__signature__ = Signature(  # pyright: ignore[reportFunctionMemberAccess]
        [
            Parameter(each, Parameter.KEYWORD_ONLY, default=defaults[each], annotation=annotation)
            for each, annotation in annotations.items()
        ]
    )
    demos.command(name, help=demo.help)(command)


for _namespace, _shipped in shipped_backends().items():
    if _shipped.demo is not None:
        _add_demo(_namespace, _shipped.demo)


def _run_demo(module: str, folder: Path | None, as_json: bool, **options: str | None) -> None:
    from gateway.cli.demo_runner import run_demo
    from gateway.telemetry.log import configure_logging

    # Keeps the gateway's log lines out of the demo output.
    configure_logging("error", "text")
    run_demo(module, folder, as_json, **options)
