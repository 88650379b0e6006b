"""`gatehouse trace`: shows the spans of a call as a waterfall in the terminal."""

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from gateway.cli.failure import CommandError
from gateway.cli.options import AsJson, Config

if TYPE_CHECKING:
    from rich.console import Console

    from gateway.telemetry.trace_store import StoredSpan

_WIDTH: Final = 40
_MIN_STAGE_SECONDS: Final = 0.000_005
"""Stages shorter than this are not shown."""
_SHOWN_ATTRIBUTES: Final = ("gatehouse.outcome", "gatehouse.policy.decision", "gatehouse.policy.ids", "error.type")


def trace(
    id: Annotated[
        str | None,
        typer.Argument(metavar="[CORRELATION_ID]", help="Correlation ID or trace ID of a call; default: list calls."),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="Number of calls in the list.")] = 20,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Show the trace of a call that is stored on this machine; without an ID, list the last calls."""
    from msgspec.structs import asdict

    from gateway.cli.load_settings import read_settings_leniently
    from gateway.cli.output import open_output
    from gateway.telemetry.trace_store import FILE, find_last_calls, find_spans

    file = Path(read_settings_leniently(config).data_dir) / FILE
    if id is None:
        calls = find_last_calls(file, limit)
        if as_json:
            print(json.dumps([asdict(span) for span in calls]))
        else:
            list_calls(calls, open_output(highlight=False))
        return
    spans = find_spans(file, id)
    if not spans:
        raise CommandError(
            f"no trace with the ID {id[:64]} is stored on this machine",
            "failed, denied and slow calls are always stored; set telemetry.traces.share to store more",
        )
    if as_json:
        print(json.dumps([asdict(span) for span in spans]))
    else:
        draw(spans, open_output(highlight=False))


def list_calls(calls: "Sequence[StoredSpan]", console: "Console") -> None:
    """Print one line for each call, the latest first."""
    from rich.table import Table
    from rich.text import Text

    if not calls:
        console.print("No calls are stored. Failed, denied and slow calls are; telemetry.traces.share stores more.")
        return
    table = Table("Finished", "Tool", "Outcome", "Duration", "Correlation ID", box=None, pad_edge=False)
    for call in calls:
        finished = datetime.fromtimestamp(call.ended / 1e9).astimezone().isoformat(sep=" ", timespec="seconds")
        outcome = str(call.attributes.get("gatehouse.outcome", ""))
        duration = f"{(call.ended - call.started) / 1e6:.1f} ms"
        cells = (finished, call.name, outcome, duration, call.correlation_id)
        table.add_row(*(Text(_printable(cell)) for cell in cells))
    console.print(table)


def draw(spans: "Sequence[StoredSpan]", console: "Console") -> None:
    """Draw each span as a bar below its parent, with the time of the longer gateway stages."""
    from rich.padding import Padding
    from rich.text import Text

    from gateway.telemetry.trace_store import in_tree_order

    first, last = min(span.started for span in spans), max(span.ended for span in spans)
    whole = max(1, last - first)
    console.print(Text(f"trace {spans[0].trace_id}   {whole / 1e6:.1f} ms"))
    for span, depth in in_tree_order(spans):
        offset = int((span.started - first) / whole * _WIDTH)
        length = max(1, round((span.ended - span.started) / whole * _WIDTH))
        bar = (" " * offset + "█" * length)[:_WIDTH].ljust(_WIDTH)
        row = Text(f"{'  ' * depth}{span.kind:<8} {_printable(span.name)}".ljust(46)[:46] + " ")
        row.append(bar, style="red" if span.error is not None else "green")
        row.append(f" {(span.ended - span.started) / 1e6:9.2f} ms")
        console.print(row, no_wrap=True, overflow="crop")
        for line in _details(span):
            details = Text(_printable(line), style="dim")
            console.print(Padding(details, (0, 0, 0, 2 * depth + 9), expand=False))


def _details(span: "StoredSpan") -> Iterator[str]:
    attributes = span.attributes
    facts = [f"{key.removeprefix('gatehouse.')}={attributes[key]}" for key in _SHOWN_ATTRIBUTES if attributes.get(key)]
    facts += [f"{name}={value}" for name, value in span.short_attributes]
    if span.error:
        facts.append(span.error)
    if facts:
        yield "  ".join(facts)
    stages = {key.removeprefix("gatehouse.stage."): value for key, value in attributes.items() if ".stage." in key}
    if stages:
        times = [f"{name} {seconds * 1e3:.2f}" for name, seconds in stages.items() if seconds >= _MIN_STAGE_SECONDS]
        yield "ms: " + "  ".join(times)


def _printable(text: str) -> str:
    """Replace control characters in text from clients: they could move the cursor."""
    return "".join(each if each.isprintable() else "�" for each in text)
