"""`gatehouse audit`: list, verify and export the records of the audit log."""

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
    from gateway.state.audit import AuditTables
    from gateway.state.audit_anchors import AnchorFiles
    from gateway.state.audit_chain import ChainBreak

audit = typer.Typer(help="Read, verify and export the audit log.")

Tenant = Annotated[str | None, typer.Option("--tenant", help="Only records of this tenant.")]
Since = Annotated[str | None, typer.Option("--since", help="Only records of this period, such as 12h or 30d.")]


@audit.callback(invoke_without_command=True)
def _start(context: typer.Context) -> None:  # pyright: ignore[reportUnusedFunction] - typer calls it
    if context.invoked_subcommand is None:
        print(context.get_help())


@audit.command("list")
def list_records(
    tenant: Tenant = None,
    subject: Annotated[
        str | None, typer.Option("--subject", help="Only records of this user; requires --tenant.")
    ] = None,
    since: Since = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=100_000, help="Maximum number of records.")] = 50,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Show the newest records, oldest first."""
    if subject is not None and tenant is None:
        raise CommandError("--subject requires --tenant, because user names are unique only in a tenant", code=2)
    principal = None if subject is None else f"{tenant}/user:{subject}"
    with _open_tables(config) as (tables, _):
        found = list(tables.records(tenant, _since_timestamp(since), limit, principal))
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        _show(found)


@audit.command()
def verify(
    tenant: Tenant = None,
    anchors: Annotated[
        Path | None, typer.Option("--anchors", help="A log with anchors that was kept elsewhere.", exists=True)
    ] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Verify the hash chains: no record was changed, reordered, removed or lost since it was queued."""
    records = 0
    broken: list[ChainBreak] = []
    from gateway.cli.output import count
    from gateway.cli.progress import ProgressBar

    with _open_tables(config) as (tables, files), ProgressBar("verifying") as progress:
        lines = anchors.read_text(errors="replace").splitlines() if anchors is not None else ()
        evidence, problems = files.read(lines)
        for each in tables.verify(tenant, evidence):
            if each is None:
                records += 1
                if records % 1000 == 0:
                    progress.update(records, None, f"{records} records")
            else:
                broken.append(each)
    if as_json:
        shown = [
            {"tenant": each.tenant, "writer": each.writer, "sequence": each.sequence, "why": each.reason}
            for each in broken
        ]
        found = {"records": records, "anchors": len(evidence.anchors), "broken": shown, "problems": problems}
        print(json.dumps(found, indent=2))
    else:
        print(f"{count(records, 'record')} verified, {count(len(evidence.anchors), 'anchor')}")
    if broken or problems:
        raise CommandError(*map(_describe_break, broken), *problems)


def _describe_break(each: "ChainBreak") -> str:
    chain = f"tenant {each.tenant}, writer {each.writer}" if each.tenant else f"writer {each.writer}"
    return f"{chain}: record {each.sequence} is the first invalid one: {each.reason}"


@audit.command()
def export(
    tenant: Tenant = None,
    since: Since = None,
    config: Config = None,
    otlp: Annotated[
        bool, typer.Option("--otlp", help="Send the records to the collector at telemetry.otlp.url instead.")
    ] = False,
) -> None:
    """Print every record as a line of JSON, with its position in its chain."""
    import msgspec

    encode = msgspec.json.Encoder().encode
    with _open_tables(config) as (tables, _):
        found = tables.records(tenant, _since_timestamp(since))
        if otlp:
            from gateway.cli.audit_otlp import send

            print(f"sent {send(found, config)} records")
            return
        for record in found:
            print(encode(record).decode())


@contextmanager
def _open_tables(config: Path | None) -> "Generator[tuple[AuditTables, AnchorFiles]]":
    import asyncio

    from gateway.cli.failure import explain_system_errors
    from gateway.cli.load_settings import read_settings_leniently
    from gateway.state.audit import AUDIT_SECRET, open_audit_tables
    from gateway.state.audit_anchors import AnchorFiles
    from gateway.state.audit_chain import AuditKey
    from gateway.state.secrets import load_secret

    settings = read_settings_leniently(config)
    with explain_system_errors(settings):
        url = settings.database.url.get_secret_value() if settings.database.url is not None else None
        if url is not None and not (settings.data_dir / "secrets" / AUDIT_SECRET).exists():
            raise CommandError("the secrets of the gateway are missing: set data_dir to its folder")
        key = AuditKey(load_secret(settings.data_dir / "secrets", AUDIT_SECRET))
        tables = asyncio.run(open_audit_tables(settings.data_dir, key, url))
        try:
            yield tables, AnchorFiles(settings.data_dir, key)
        finally:
            tables.close()


def _since_timestamp(since: str | None) -> float:
    from gateway.cli.key import parse_duration

    return 0.0 if since is None else time.time() - parse_duration(since, "--since")


def _show(records: list[dict[str, Any]]) -> None:
    from datetime import UTC, datetime

    from rich.markup import escape
    from rich.table import Table

    from gateway.cli.output import open_output
    from gateway.cli.top import fit_id_column

    table = Table("UTC", "principal", "target", "decision", "policies", "outcome", "id", box=None, pad_edge=False)
    for column in table.columns:
        column.overflow = "fold"  # no value is truncated
    fit_id_column(table.columns[-1], (each["correlation_id"] for each in records))
    for each in records:
        timestamp = datetime.fromtimestamp(each["at"], UTC).isoformat(" ", "seconds").removesuffix("+00:00")
        target = f"{each['method']} {each['target']}".rstrip()
        outcome = "outcome unknown" if each["outcome"] == "intent" else each["outcome"]
        cells = (timestamp, each["principal"], target, each["decision"], each["policies"], outcome)
        table.add_row(*map(escape, (*cells, each["correlation_id"])))
    open_output().print(table)
