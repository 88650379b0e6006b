"""Declarations of `gatehouse accounts` and `gatehouse vault`; `main.py` registers them."""

from typing import Annotated

import typer

from gateway.cli.options import AsJson, Config

accounts = typer.Typer(help="Your accounts at remote servers: list, connect and disconnect them.")
vault = typer.Typer(help="The vault of users' tokens and keys.")

Url = Annotated[
    str | None,
    typer.Option("--url", envvar="GATEHOUSE_URL", help="URL of the running gateway; default: from the settings."),
]
Token = Annotated[str | None, typer.Option("--token", envvar="GATEHOUSE_TOKEN", help="API key or access token.")]
Backend = Annotated[str, typer.Argument(metavar="NAME", help="Namespace of the backend.")]


@accounts.callback(invoke_without_command=True)
@vault.callback(invoke_without_command=True)
def _start(context: typer.Context) -> None:  # pyright: ignore[reportUnusedFunction] - typer calls it
    if context.invoked_subcommand is None:
        print(context.get_help())


@accounts.command("list")
def list_accounts(
    everyone: Annotated[
        bool, typer.Option("--all", help="All accounts of the tenant; needs the scope mcp:admin.")
    ] = False,
    url: Url = None,
    token: Token = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """List your accounts, without their tokens."""
    from gateway.cli.accounts import list_accounts

    list_accounts(url, token, config, everyone=everyone, as_json=as_json)


@accounts.command("connect")
def connect(
    backend: Backend,
    key_stdin: Annotated[
        bool, typer.Option("--key-stdin", help="Store a personal key, read from standard input.")
    ] = False,
    url: Url = None,
    token: Token = None,
    config: Config = None,
) -> None:
    """Print the page on which you connect an account, and wait until it is connected."""
    from gateway.cli.accounts import connect

    connect(backend, url, token, config, key_stdin=key_stdin)


@accounts.command("disconnect")
def disconnect(
    backend: Backend,
    principal: Annotated[
        str | None,
        typer.Option("--principal", help="Account of another user, as tenant/user:name; needs the scope mcp:admin."),
    ] = None,
    url: Url = None,
    token: Token = None,
    config: Config = None,
) -> None:
    """Disconnect an account: its tokens are deleted here and revoked at the server."""
    from gateway.cli.accounts import disconnect

    disconnect(backend, principal, url, token, config)


@vault.command("rotate")
def rotate(config: Config = None, as_json: AsJson = False) -> None:
    """Seal all tokens with new data keys and the current master key, while the gateway runs."""
    from gateway.cli.accounts import rotate

    rotate(config, as_json)
