"""Declarations of the commands for users, clients, SCIM and signing keys. Each imports its code when it runs."""

from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.options import AsJson, Config

Tenant = Annotated[str, typer.Option("--tenant", help="Tenant of the user or client.")]
Scopes = Annotated[list[str] | None, typer.Option("--scope", help="Scope that may be granted; may be repeated.")]

users = typer.Typer(help="Create, list, suspend and remove users.")
clients = typer.Typer(help="Create, list and remove OAuth clients of services.")
scim = typer.Typer(help="Manage the tokens with which identity providers provision users (SCIM).")
signing = typer.Typer(help="Manage the keys that sign tokens.")


@users.callback(invoke_without_command=True)
@clients.callback(invoke_without_command=True)
@scim.callback(invoke_without_command=True)
@signing.callback(invoke_without_command=True)
def _start(context: typer.Context) -> None:  # pyright: ignore[reportUnusedFunction] - typer calls it
    if context.invoked_subcommand is None:
        print(context.get_help())


@users.command("add")
def add_user(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Sign-in name of the user.")],
    tenant: Tenant = "default",
    group: Annotated[list[str] | None, typer.Option("--group", help="Group of the user; may be repeated.")] = None,
    scope: Scopes = None,
    password_stdin: Annotated[
        bool, typer.Option("--password-stdin", help="Read the password from standard input instead of prompting.")
    ] = False,
    config: Config = None,
) -> None:
    """Create a user, or change the password of an existing one."""
    from gateway.cli.identity import add_user

    add_user(name, tenant, group or [], scope, password_stdin, config)


@users.command("list")
def list_users(
    tenant: Annotated[str | None, typer.Option("--tenant", help="Only users of this tenant.")] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """List the users, and where each of them signs in."""
    from gateway.cli.identity import list_users

    list_users(tenant, config, as_json)


@users.command("remove")
def remove_user(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Sign-in name of the user.")],
    tenant: Tenant = "default",
    config: Config = None,
) -> None:
    """Remove a user and end all sessions of that user."""
    from gateway.cli.identity import remove_user

    remove_user(name, tenant, config)


@users.command("suspend")
def suspend_user(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the user, as `user list` shows it.")],
    tenant: Tenant = "default",
    config: Config = None,
) -> None:
    """End all sessions of a user and reject the user's keys and sign-ins until `user resume`."""
    from gateway.cli.identity import suspend_user

    suspend_user(name, tenant, config)


@users.command("resume")
def resume_user(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the user, as `user list` shows it.")],
    tenant: Tenant = "default",
    config: Config = None,
) -> None:
    """Let a suspended user sign in again."""
    from gateway.cli.identity import resume_user

    resume_user(name, tenant, config)


@users.command("code")
def sign_in_code(config: Config = None, as_json: AsJson = False) -> None:
    """Print a one-time code that signs in a browser on this machine."""
    from gateway.cli.identity import create_sign_in_code

    create_sign_in_code(config, as_json)


@clients.command("add")
def add_client(
    service: Annotated[str, typer.Option("--service", help="Service account of the client.")],
    tenant: Tenant = "default",
    scope: Scopes = None,
    jwks: Annotated[
        Path | None,
        typer.Option("--jwks", help="File with its public keys (JWK set); the client then needs no secret."),
    ] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Create a client for the client credentials grant and print its ID and secret. The secret is shown only once."""
    from gateway.cli.identity import add_client

    add_client(service, tenant, scope, jwks, config, as_json)


@clients.command("list")
def list_clients(config: Config = None, as_json: AsJson = False) -> None:
    """List the clients, including dynamically registered ones."""
    from gateway.cli.identity import list_clients

    list_clients(config, as_json)


@clients.command("remove")
def remove_client(
    client_id: Annotated[str, typer.Argument(metavar="CLIENT", help="ID of the client.")], config: Config = None
) -> None:
    """Remove a client and revoke its tokens."""
    from gateway.cli.identity import remove_client

    remove_client(client_id, config)


def admin_sign_in_code(
    admin: Annotated[
        bool, typer.Option("--admin", help="Confirm that the code signs in with all rights in tenant default.")
    ] = False,
    config: Config = None,
) -> None:
    """Print a one-time code for an administrator, valid for 15 minutes, for when the identity provider fails."""
    from gateway.cli.identity import create_admin_code

    create_admin_code(admin, config)


@scim.command("token")
def create_scim_token(
    provider: Annotated[str, typer.Option("--provider", help="Name of the provider in auth.providers.")],
    tenant: Tenant = "default",
    config: Config = None,
) -> None:
    """Create the SCIM token of a tenant and print it. It is shown only once and replaces an earlier one."""
    from gateway.cli.identity import create_scim_token

    create_scim_token(tenant, provider, config)


@scim.command("list")
def list_scim_tokens(config: Config = None, as_json: AsJson = False) -> None:
    """List the tenants that have a SCIM token."""
    from gateway.cli.identity import list_scim_tokens

    list_scim_tokens(config, as_json)


@scim.command("revoke")
def revoke_scim_token(tenant: Tenant = "default", config: Config = None) -> None:
    """Revoke the SCIM token of a tenant."""
    from gateway.cli.identity import revoke_scim_token

    revoke_scim_token(tenant, config)


@signing.command("rotate")
def rotate_signing(config: Config = None, as_json: AsJson = False) -> None:
    """Sign new tokens with a new key. Existing tokens stay valid until they expire."""
    from gateway.cli.identity import rotate

    rotate(config, as_json)
