"""`gatehouse tenant`: who is served. Works on the data folder itself; a running gateway knows within a second."""

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
    backend: Annotated[list[str] | None, typer.Option("--backend", help="Namespace it may use; default all.")] = None,
    server: Annotated[list[str] | None, typer.Option("--server", help="Virtual server it may enter; all.")] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Withhold tools that write.")] = False,
    config: Config = None,
) -> None:
    """Add a tenant: keys can then be made for it."""
    from gateway.cli.failure import say
    from gateway.cli.load_settings import read_without_backends

    _with_tenants(
        config,
        lambda kept: kept.add(
            name, {"backends": _all_unless(backend), "servers": _all_unless(server), "read_only": read_only}
        ),
    )
    settings = read_without_backends(config)
    for kind, given, known in (("backend", backend, settings.backends), ("server", server, settings.servers)):
        for each in given or ():
            if each != "*" and each not in known:
                # Not refused: it may be added later.
                say(f"warning: no {kind} is named {each} (known: {', '.join(known) or 'none'})")


@tenants.command("list")
def list_tenants(config: Config = None, as_json: AsJson = False) -> None:
    """List the tenants and what each may use."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    async def read(kept: "Tenants") -> "list[Tenant]":
        return kept.all()

    found = _with_tenants(config, read)
    if as_json:
        print(json.dumps([asdict(each) for each in found], indent=2))
        return
    table = Table("tenant", "state", "backends", "servers", box=None, pad_edge=False)
    for each in found:
        state = "suspended" if each.suspended else "read-only" if each.read_only else "active"
        table.add_row(*map(escape, (each.name, state, " ".join(each.backends), " ".join(each.servers))))
    Console().print(table)


@tenants.command()
def suspend(name: Name, config: Config = None) -> None:
    """Refuse everything of a tenant from now on; its data stay."""
    _with_tenants(config, lambda kept: kept.change(name, {"suspended": True}))


@tenants.command()
def resume(name: Name, config: Config = None) -> None:
    """Serve a suspended tenant again."""
    _with_tenants(config, lambda kept: kept.change(name, {"suspended": False}))


def _all_unless(given: Sequence[str] | None) -> Sequence[str]:
    return given or ("*",)


def _with_tenants(config: Path | None, work: "Callable[[Tenants], Awaitable[T]]") -> T:
    from gateway.cli.failure import system_errors_explained
    from gateway.cli.identity_db import open_database
    from gateway.cli.load_settings import read_without_backends
    from gateway.state.tenants import Tenants

    settings = read_without_backends(config)

    async def run() -> T:
        database = await open_database(settings)
        try:
            kept = await Tenants.open(database)
            # What the settings name is a tenant before the first start too.
            await kept.apply({name: cast("TenantChange", each.stated()) for name, each in settings.tenants.items()})
            return await work(kept)
        finally:
            await database.close()

    with system_errors_explained(settings):
        return asyncio.run(run())
