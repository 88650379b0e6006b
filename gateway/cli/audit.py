"""`gatehouse audit`: who did what, whether the record of it still holds, and all of it for other programs."""

import json
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gateway.cli.failure import CommandError
from gateway.cli.options import AsJson, Config

if TYPE_CHECKING:
    from gateway.state.audit import AuditTableWriter
    from gateway.state.audit_chain import ChainBreak

audit = typer.Typer(help="Read, verify and export the audit log.")

Tenant = Annotated[str | None, typer.Option("--tenant", help="Only this tenant's.")]
Since = Annotated[str | None, typer.Option("--since", help="Only of the last while, such as 12h or 30d.")]


@audit.callback(invoke_without_command=True)
def _start(context: typer.Context) -> None:  # pyright: ignore[reportUnusedFunction] - typer calls it
    if context.invoked_subcommand is None:
        print(context.get_help())


@audit.command("list")
def list_records(
    tenant: Tenant = None,
    subject: Annotated[str | None, typer.Option("--subject", help="Only this user's; needs --tenant.")] = None,
    since: Since = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=100_000, help="The newest so many.")] = 50,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Show the newest records, oldest first."""
    if subject is not None and tenant is None:
        raise CommandError("--subject needs --tenant: users of two tenants may have one name", code=2)
    principal = None if subject is None else f"{tenant}/user:{subject}"
    with _opened(config) as kept:
        found = list(kept.records(tenant, _moment(since), limit, principal))
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        _show(found)


@audit.command()
def verify(tenant: Tenant = None, config: Config = None, as_json: AsJson = False) -> None:
    """Check that no record was changed, moved or taken away since it was written."""
    records = 0
    broken: list[ChainBreak] = []
    from gateway.cli.progress import ProgressBar

    with _opened(config) as kept, ProgressBar("verifying") as waiting:
        for each in kept.verify(tenant):
            if each is None:
                records += 1
                if records % 1000 == 0:
                    waiting.at(records, None, f"{records} records")
            else:
                broken.append(each)
    if as_json:
        shown = [
            {"tenant": each.tenant, "writer": each.writer, "sequence": each.sequence, "why": each.why}
            for each in broken
        ]
        print(json.dumps({"records": records, "broken": shown}, indent=2))
    else:
        print(f"{records} records hold")
    if broken:
        raise CommandError(*map(_told, broken))


def _told(each: "ChainBreak") -> str:
    chain = f"tenant {each.tenant}, writer {each.writer}"
    return f"{chain}: record {each.sequence} is the first that is broken: {each.why}"


@audit.command()
def export(
    tenant: Tenant = None,
    since: Since = None,
    config: Config = None,
    otlp: Annotated[
        bool, typer.Option("--otlp", help="Send them as log records to the collector of telemetry.otlp instead.")
    ] = False,
) -> None:
    """Print every record as a line of JSON, with its place in its chain."""
    import msgspec

    encode = msgspec.json.Encoder().encode
    with _opened(config) as kept:
        found = kept.records(tenant, _moment(since))
        if otlp:
            from gateway.cli.audit_otlp import send

            print(f"{send(found, config)} records were sent")
            return
        for record in found:
            print(encode(record).decode())


@contextmanager
def _opened(config: Path | None) -> "Generator[AuditTableWriter]":
    import asyncio

    from gateway.cli.failure import system_errors_explained
    from gateway.cli.load_settings import read_without_backends
    from gateway.state.audit import open_ledger

    settings = read_without_backends(config)
    with system_errors_explained(settings):
        at = settings.database.url
        kept = asyncio.run(open_ledger(settings.data_dir, at.get_secret_value() if at is not None else None))
        try:
            yield kept
        finally:
            kept.close()


def _moment(since: str | None) -> float:
    from gateway.cli.key import seconds

    return 0.0 if since is None else time.time() - seconds(since, "--since")


def _show(records: list[dict[str, Any]]) -> None:
    from datetime import UTC, datetime

    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from gateway.cli.top import keep_whole

    table = Table("UTC", "who", "what", "decision", "policies", "outcome", "id", box=None, pad_edge=False)
    for column in table.columns:
        column.overflow = "fold"  # what is looked for in a record is not cut
    keep_whole(table.columns[-1], (each["correlation_id"] for each in records))
    for each in records:
        moment = datetime.fromtimestamp(each["at"], UTC).isoformat(" ", "seconds").removesuffix("+00:00")
        what = f"{each['method']} {each['target']}".rstrip()
        cells = (moment, each["principal"], what, each["decision"], each["policies"], each["outcome"])
        table.add_row(*map(escape, (*cells, each["correlation_id"])))
    Console().print(table)
