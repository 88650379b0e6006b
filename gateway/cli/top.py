"""`gatehouse top`: a live view of calls, outcomes and durations."""

import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from gateway.cli.options import AsJson, Config

if TYPE_CHECKING:
    from rich.console import RenderableType

    from gateway.contract import Json

REFRESH_SECONDS: Final = 1.0
_MAX_ROWS: Final = 15
_SLOTS: Final = 60
_MAX_ID_WIDTH: Final = 36
_BARS: Final = " ▁▂▃▄▅▆▇█"
_COLOUR: Final = {"ok": "green", "refused": "yellow", "failed": "red"}

Url = Annotated[str | None, typer.Option("--url", help="URL of a running gateway; default: read the local audit log.")]
Token = Annotated[
    str | None, typer.Option("--token", envvar="GATEHOUSE_TOKEN", help="API key or token with the scope mcp:admin.")
]
Minutes = Annotated[int, typer.Option("--minutes", min=1, max=1440, help="Period to show, in minutes.")]


def top(
    config: Config = None,
    url: Url = None,
    token: Token = None,
    minutes: Minutes = 15,
    as_json: AsJson = False,
) -> None:
    """Show calls live. With --json, or if the output is not a terminal, print once and exit."""
    import json

    from rich.live import Live

    from gateway.cli.output import open_output

    read = _remote(url, config, token, minutes) if url is not None else _local(config, minutes)
    if as_json:
        print(json.dumps(read(), ensure_ascii=False))
        return
    if not sys.stdout.isatty():
        open_output(highlight=False).print(render(read()))
        return
    with Live(render(read()), auto_refresh=False, screen=True) as live:
        try:
            while True:
                time.sleep(REFRESH_SECONDS)
                live.update(render(read()), refresh=True)
        except KeyboardInterrupt:
            return


def _remote(url: str, config: Path | None, token: str | None, minutes: int) -> Any:
    from gateway.cli.impersonate import get_api
    from gateway.cli.load_settings import api_url

    base = api_url(url, config)

    def read() -> "Json":
        return {
            "traffic": get_api(base, token, "traffic", {"minutes": minutes}),
            **get_api(base, token, "calls", {"limit": _MAX_ROWS}),
        }

    return read


def _local(config: Path | None, minutes: int) -> Any:
    from msgspec import to_builtins

    from gateway.cli.load_settings import read_settings_leniently
    from gateway.state.audit_sqlite import FILE
    from gateway.state.call_history import CallFilter, CallHistory

    settings = read_settings_leniently(config)
    at = settings.database.url
    calls = CallHistory(Path(settings.data_dir) / FILE, at.get_secret_value() if at is not None else None)

    def read() -> "Json":
        recent = calls.traffic_sync(None, minutes * 60, _SLOTS)
        shares = {f"p{share}_us": round(recent.percentile(share / 100)) for share in (50, 95, 99)}
        traffic = {**to_builtins(recent), "calls": recent.calls, **shares}
        return {"traffic": traffic, "calls": to_builtins(calls.find_sync(CallFilter(limit=_MAX_ROWS)))}

    return read


def render(data: "Json") -> "RenderableType":
    """Render one frame. Calls in progress are shown only with --url: the audit log contains finished calls."""
    from rich.console import Group

    traffic: Json = data["traffic"]
    parts: list[RenderableType] = [_head(traffic), _tools(traffic)]
    if data.get("running"):
        parts.append(_running(data["running"]))
    return Group(*parts, _calls(data["calls"]))


def _head(traffic: "Json") -> "RenderableType":
    from rich.text import Text

    counts = [sum(each) for each in zip(traffic["ok"], traffic["refused"], traffic["failed"], strict=True)]
    peak = max(*counts, 1)
    line = "".join(_BARS[-(-count * (len(_BARS) - 1) // peak)] for count in counts)
    refused, failed = sum(traffic["refused"]), sum(traffic["failed"])
    minutes = traffic["width"] * len(counts) / 60
    percentiles = "  ".join(f"p{share} {format_duration(traffic[f'p{share}_us'])}" for share in (50, 95, 99))
    return Text.assemble(
        ("Gatehouse", "bold"),
        f"  {traffic['calls']} calls in {minutes:g} min  ",
        (f"{refused} refused", "yellow" if refused else "dim"),
        "  ",
        (f"{failed} failed", "red" if failed else "dim"),
        f"\n{percentiles}\n",
        (line, "cyan"),
        "\n",
    )


def _tools(traffic: "Json") -> "RenderableType":
    table = _table("tool", "calls", "errors", "mean", "max")
    for tool in traffic["tools"][:5]:
        durations = (format_duration(tool["mean_us"]), format_duration(tool["longest_us"]))
        table.add_row(_printable(tool["target"]), str(tool["calls"]), str(tool["bad"]), *durations)
    return table


def _running(running: "list[Json]") -> "RenderableType":
    table = _table("\nin progress", "\nduration", "\nprincipal", "\nid")
    fit_id_column(table.columns[-1], (each["correlation_id"] for each in running))
    for each in running[:_MAX_ROWS]:
        cells = (_printable(each["target"]), f"{each['seconds']:.1f} s", _printable(each["principal"]))
        table.add_row(*cells, _printable(each["correlation_id"], whole=True))
    return table


def _calls(calls: "list[Json]") -> "RenderableType":
    from rich.text import Text

    from gateway.state.call_history import classify_outcome

    table = _table("\nUTC", "\noutcome", "\nduration", "\ntarget", "\nprincipal", "\nid")
    fit_id_column(table.columns[-1], (each["correlation_id"] for each in calls))
    for each in calls:
        at = time.strftime("%H:%M:%S", time.gmtime(each["at"]))  # UTC, like the audit log and the traces
        target = each["target"] or each["method"]
        outcome = Text(each["outcome"], style=_COLOUR[classify_outcome(each["outcome"])])
        cells = (_printable(target), _printable(each["principal"]), _printable(each["correlation_id"], whole=True))
        table.add_row(at, outcome, format_duration(each["duration_us"]), *cells)
    return table


def _table(*columns: str) -> Any:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in columns:
        # On a narrow terminal the cells of these columns are truncated, not wrapped.
        table.add_column(name, no_wrap=name.strip() not in ("tool", "in progress", "target", "principal"))
    return table


def fit_id_column(column: Any, ids: "Iterable[str]") -> None:
    """Set the width of an ID column: IDs are shown complete, other columns shrink on a narrow terminal."""
    column.width = min(max(map(len, ids), default=2), _MAX_ID_WIDTH)
    column.no_wrap, column.overflow = False, "fold"


def format_duration(microseconds: float) -> str:
    if microseconds < 1000:
        return f"{microseconds:.0f} µs"
    return f"{microseconds / 1000:.1f} ms" if microseconds < 1_000_000 else f"{microseconds / 1e6:.1f} s"


def _printable(text: str, *, whole: bool = False) -> Any:
    """Text from clients without markup and without control characters."""
    from rich.text import Text

    shown = "".join(each if each.isprintable() else "�" for each in text)
    return Text(shown, overflow="fold") if whole else Text(shown, no_wrap=True, overflow="ellipsis")
