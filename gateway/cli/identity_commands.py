"""`gatehouse user`, `client` and `signing`: what can be typed. What they do is imported when they are run."""

from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.options import AsJson, Config

Tenant = Annotated[str, typer.Option("--tenant", help="Tenant they belong to.")]
Scopes = Annotated[list[str] | None, typer.Option("--scope", help="What they may do at most; may be repeated.")]

users = typer.Typer(help="Make, list and remove users who sign in.")
clients = typer.Typer(help="Make, list and remove OAuth clients of services.")
signing = typer.Typer(help="The keys that tokens are signed with.")


@users.callback(invoke_without_command=True)
@clients.callback(invoke_without_command=True)
@signing.callback(invoke_without_command=True)
def _start(context: typer.Context) -> None:  # pyright: ignore[reportUnusedFunction] - typer calls it
    if context.invoked_subcommand is None:
        print(context.get_help())


@users.command("add")
def add_user(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name they sign in with.")],
    tenant: Tenant = "default",
    group: Annotated[list[str] | None, typer.Option("--group", help="Group they are in; may be repeated.")] = None,
    scope: Scopes = None,
    password_stdin: Annotated[
        bool, typer.Option("--password-stdin", help="Read the password from standard input instead of asking.")
    ] = False,
    config: Config = None,
) -> None:
    """Make a user, or give one another password."""
    from gateway.cli.identity import add_user

    add_user(name, tenant, group or [], scope, password_stdin, config)


@users.command("list")
def list_users(
    tenant: Annotated[str | None, typer.Option("--tenant", help="Only this tenant's.")] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """List the users, never their passwords."""
    from gateway.cli.identity import list_users

    list_users(tenant, config, as_json)


@users.command("remove")
def remove_user(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name they sign in with.")],
    tenant: Tenant = "default",
    config: Config = None,
) -> None:
    """Remove a user: everything signed in under that name ends."""
    from gateway.cli.identity import remove_user

    remove_user(name, tenant, config)


@users.command("code")
def sign_in_code(config: Config = None) -> None:
    """Print a code that signs a browser of this machine in, once."""
    from gateway.cli.identity import create_sign_in_code

    create_sign_in_code(config)


@clients.command("add")
def add_client(
    service: Annotated[str, typer.Option("--service", help="Service account that the client is.")],
    tenant: Tenant = "default",
    scope: Scopes = None,
    jwks: Annotated[
        Path | None, typer.Option("--jwks", help="Its public keys, a JWK set; it then needs no secret.")
    ] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Make a client that gets tokens by itself, and print its id and secret: the only time they are shown."""
    from gateway.cli.identity import add_client

    add_client(service, tenant, scope, jwks, config, as_json)


@clients.command("list")
def list_clients(config: Config = None, as_json: AsJson = False) -> None:
    """List the clients, those that registered themselves included."""
    from gateway.cli.identity import list_clients

    list_clients(config, as_json)


@clients.command("remove")
def remove_client(
    client_id: Annotated[str, typer.Argument(metavar="CLIENT", help="Id of the client.")], config: Config = None
) -> None:
    """Remove a client: its tokens end."""
    from gateway.cli.identity import remove_client

    remove_client(client_id, config)


@signing.command("rotate")
def rotate_signing(config: Config = None) -> None:
    """Sign with a new key from now on; tokens signed before stay good until they end."""
    from gateway.cli.identity import rotate

    rotate(config)
