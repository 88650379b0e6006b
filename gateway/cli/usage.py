"""`gatehouse usage`: the current usage of a tenant's rate limits, backend shares and streams."""

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gateway.cli.options import AsJson, Config

if TYPE_CHECKING:
    from rich.console import Console

Url = Annotated[
    str | None,
    typer.Option("--url", envvar="GATEHOUSE_URL", help="URL of the running gateway; default: from the settings."),
]


def usage(
    url: Url = None,
    token: Annotated[
        str | None, typer.Option("--token", envvar="GATEHOUSE_TOKEN", help="API key or token with mcp:admin.")
    ] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Show the current usage of the tenant's limits, shares and streams, summed over all workers."""
    from gateway.cli.impersonate import get_api
    from gateway.cli.load_settings import api_url
    from gateway.cli.output import open_output

    report = get_api(api_url(url, config), token, "usage", {})
    if as_json:
        print(json.dumps(report, indent=2))
        return
    console = open_output()
    workers = "1 worker" if report["workers"] == 1 else f"{report['workers']} workers"
    console.print(f"tenant {report['tenant']}, {workers}", markup=False, highlight=False)
    limits = (
        (
            row["limit"],
            " ".join(row["of"]) or "tenant",
            f"{row['taken']:g} of {row['amount']:g}",
            f"{row['seconds']:g} s",
        )
        for row in report["limits"]
    )
    _table(console, "limits", ("limit", "applies to", "used", "period"), limits)
    shares = ((row["backend"], row["principal"], row["running"], row["waiting"]) for row in report["shares"])
    _table(console, "shares", ("backend", "principal", "running", "queued"), shares)
    open_streams = ((row["principal"], row["streams"], row["subscriptions"]) for row in report["open"])
    _table(console, "open", ("principal", "streams", "subscriptions"), open_streams)


def _table(console: "Console", title: str, columns: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> None:
    from rich.markup import escape
    from rich.table import Table

    table = Table(*columns, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*(escape(str(cell)) for cell in row))
    console.print(f"\n{title}{':' if table.rows else ': none'}", highlight=False)
    if table.rows:
        console.print(table)
