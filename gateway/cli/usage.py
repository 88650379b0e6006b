"""`gatehouse usage`: what a tenant uses of its limits, shares and streams at this moment."""

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gateway.cli.options import AsJson, Config

if TYPE_CHECKING:
    from rich.console import Console

Url = Annotated[
    str | None,
    typer.Option("--url", envvar="GATEHOUSE_URL", help="The running gateway; that of the settings unless given."),
]


def usage(
    url: Url = None,
    token: Annotated[str | None, typer.Option("--token", envvar="GATEHOUSE_TOKEN", help="With mcp:admin.")] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Show what the token's tenant uses of its limits, shares and streams at this moment, over all workers."""
    from rich.console import Console

    from gateway.cli.impersonate import read_api
    from gateway.cli.load_settings import api_address

    told = read_api(api_address(url, config), token, "usage", {})
    if as_json:
        print(json.dumps(told, indent=2))
        return
    console = Console()
    workers = "1 worker" if told["workers"] == 1 else f"{told['workers']} workers"
    console.print(f"tenant {told['tenant']}, {workers}", markup=False, highlight=False)
    limits = (
        (
            row["limit"],
            " ".join(row["of"]) or "tenant",
            f"{row['taken']:g} of {row['amount']:g}",
            f"{row['seconds']:g} s",
        )
        for row in told["limits"]
    )
    _table(console, "limits", ("limit", "of", "taken", "within"), limits)
    shares = ((row["backend"], row["principal"], row["running"], row["waiting"]) for row in told["shares"])
    _table(console, "shares", ("backend", "principal", "running", "waiting"), shares)
    held = ((row["principal"], row["streams"], row["subscriptions"]) for row in told["open"])
    _table(console, "open", ("principal", "streams", "subscriptions"), held)


def _table(console: "Console", title: str, columns: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> None:
    from rich.markup import escape
    from rich.table import Table

    table = Table(*columns, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*(escape(str(cell)) for cell in row))
    console.print(f"\n{title}{':' if table.rows else ': none'}", highlight=False)
    if table.rows:
        console.print(table)
