"""`gatehouse trace`: a call and all that was done for it, as a waterfall in the terminal."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from gateway.cli.failure import CommandError
from gateway.cli.options import AsJson, Config

if TYPE_CHECKING:
    from rich.console import Console

    from gateway.telemetry.trace_store import StoredSpan

_WIDTH: Final = 40
_NOTHING: Final = 0.000_005
"""Seconds that are not worth a word."""
_SHOWN: Final = ("gatehouse.outcome", "gatehouse.policy.decision", "gatehouse.policy.ids", "error.type")


def trace(
    id: Annotated[str, typer.Argument(metavar="CORRELATION_ID", help="Of the call, or the id of its trace.")],
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Show where a call's time went, of the calls that this machine kept."""
    from msgspec.structs import asdict
    from rich.console import Console

    from gateway.cli.load_settings import read_without_backends
    from gateway.telemetry.trace_store import FILE, find

    spans = find(Path(read_without_backends(config).data_dir) / FILE, id)
    if not spans:
        raise CommandError(
            f"no call of the id {id[:64]} was kept here",
            "failed, denied and slow calls always are, of the others telemetry.traces.share",
        )
    if as_json:
        print(json.dumps([asdict(span) for span in spans]))
    else:
        draw(spans, Console(highlight=False))


def draw(spans: "Sequence[StoredSpan]", console: "Console") -> None:
    """Each span a bar below its parent, with the gateway's own stages where they matter."""
    from rich.padding import Padding
    from rich.text import Text

    from gateway.telemetry.trace_store import nested

    first, last = min(span.started for span in spans), max(span.ended for span in spans)
    whole = max(1, last - first)
    console.print(Text(f"trace {spans[0].trace_id}   {whole / 1e6:.1f} ms"))
    for span, depth in nested(spans):
        before = int((span.started - first) / whole * _WIDTH)
        long = max(1, round((span.ended - span.started) / whole * _WIDTH))
        bar = (" " * before + "█" * long)[:_WIDTH].ljust(_WIDTH)
        line = Text(f"{'  ' * depth}{span.kind:<8} {_plain(span.name)}".ljust(46)[:46] + " ")
        line.append(bar, style="red" if span.error is not None else "green")
        line.append(f" {(span.ended - span.started) / 1e6:9.2f} ms")
        console.print(line, no_wrap=True, overflow="crop")
        for words in _details(span):
            told = Text(_plain(words), style="dim")
            console.print(Padding(told, (0, 0, 0, 2 * depth + 9), expand=False))


def _details(span: "StoredSpan") -> Iterator[str]:
    shown = span.attributes
    facts = [f"{key.removeprefix('gatehouse.')}={shown[key]}" for key in _SHOWN if shown.get(key)]
    facts += [f"{name}={value}" for name, value in span.said]
    if span.error:
        facts.append(span.error)
    if facts:
        yield "  ".join(facts)
    stages = {key.removeprefix("gatehouse.stage."): value for key, value in shown.items() if ".stage." in key}
    if stages:
        long = [f"{name} {seconds * 1e3:.2f}" for name, seconds in stages.items() if seconds >= _NOTHING]
        yield "ms: " + "  ".join(long)


def _plain(text: str) -> str:
    """Nothing that a client chose can move the cursor."""
    return "".join(each if each.isprintable() else "�" for each in text)
