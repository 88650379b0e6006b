"""`gatehouse tenant`: manages tenants in the database. A running gateway notices changes within a second."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar, cast

import typer

from gateway.cli.options import AsJson, Config

if TYPE_CHECKING:
    from gateway.state.tenants import Tenant, TenantChange, Tenants

T = TypeVar("T")

tenants = typer.Typer(help="Add, list, suspend and resume tenants.")

Name = Annotated[str, typer.Argument(metavar="TENANT", help="Name of the tenant.")]


@tenants.callback(invoke_without_command=True)
def _start(context: typer.Context) -> None:  # pyright: ignore[reportUnusedFunction] - typer calls it
    if context.invoked_subcommand is None:
        print(context.get_help())


@tenants.command()
def add(
    name: Name,
    backend: Annotated[
        list[str] | None, typer.Option("--backend", help="Namespace the tenant may use; default: all.")
    ] = None,
    server: Annotated[
        list[str] | None, typer.Option("--server", help="Virtual server the tenant may use; default: all.")
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Deny tools that write.")] = False,
    config: Config = None,
) -> None:
    """Add a tenant."""
    from gateway.cli.failure import print_stderr
    from gateway.cli.load_settings import read_settings_leniently

    _with_tenants(
        config,
        lambda tenants: tenants.add(
            name, {"backends": _or_all(backend), "servers": _or_all(server), "read_only": read_only}
        ),
    )
    settings = read_settings_leniently(config)
    for kind, names, known in (("backend", backend, settings.backends), ("server", server, settings.servers)):
        for name in names or ():
            if name != "*" and name not in known:
                # Only a warning: it may be added later.
                print_stderr(f"warning: unknown {kind} {name} (known: {', '.join(known) or 'none'})")


@tenants.command("list")
def list_tenants(config: Config = None, as_json: AsJson = False) -> None:
    """List the tenants and the backends and servers each may use."""
    from rich.markup import escape
    from rich.table import Table

    from gateway.cli.output import open_output

    async def read(tenants: "Tenants") -> "list[Tenant]":
        return tenants.all()

    found = _with_tenants(config, read)
    if as_json:
        print(json.dumps([asdict(each) for each in found], indent=2))
        return
    table = Table("tenant", "state", "backends", "servers", box=None, pad_edge=False)
    for each in found:
        state = "suspended" if each.suspended else "read-only" if each.read_only else "active"
        table.add_row(*map(escape, (each.name, state, " ".join(each.backends), " ".join(each.servers))))
    open_output().print(table)


@tenants.command()
def suspend(name: Name, config: Config = None) -> None:
    """Reject all requests of a tenant. Its data is kept."""
    _with_tenants(config, lambda tenants: tenants.change(name, {"suspended": True}))


@tenants.command()
def resume(name: Name, config: Config = None) -> None:
    """Resume a suspended tenant."""
    _with_tenants(config, lambda tenants: tenants.change(name, {"suspended": False}))


def _or_all(names: Sequence[str] | None) -> Sequence[str]:
    return names or ("*",)


def _with_tenants(config: Path | None, work: "Callable[[Tenants], Awaitable[T]]") -> T:
    from gateway.cli.failure import explain_system_errors
    from gateway.cli.identity_db import open_database
    from gateway.cli.load_settings import read_settings_leniently
    from gateway.state.tenants import Tenants

    settings = read_settings_leniently(config)

    async def run() -> T:
        database = await open_database(settings)
        try:
            tenants = await Tenants.open(database)
            # The tenants of the settings exist even before the first start.
            await tenants.apply(
                {name: cast("TenantChange", each.explicit_values()) for name, each in settings.tenants.items()}
            )
            return await work(tenants)
        finally:
            await database.close()

    with explain_system_errors(settings):
        return asyncio.run(run())
