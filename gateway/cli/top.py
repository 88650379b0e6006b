"""`gatehouse top`: what is called now, how it ends and how long it takes."""

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

EVERY: Final = 1.0
_SHOWN: Final = 15
_SLOTS: Final = 60
_LONGEST_ID: Final = 36
_BARS: Final = " ▁▂▃▄▅▆▇█"
_COLOUR: Final = {"ok": "green", "refused": "yellow", "failed": "red"}

Url = Annotated[
    str | None, typer.Option("--url", help="Ask a running gateway at this address; unless given, read the data folder.")
]
Token = Annotated[
    str | None, typer.Option("--token", envvar="GATEHOUSE_TOKEN", help="Its key or token, with the scope mcp:admin.")
]
Minutes = Annotated[int, typer.Option("--minutes", min=1, max=1440, help="How far to look back.")]


def top(
    config: Config = None,
    url: Url = None,
    token: Token = None,
    minutes: Minutes = 15,
    as_json: AsJson = False,
) -> None:
    """Show calls as they come. In a pipe, or with --json, once."""
    import json

    from rich.console import Console
    from rich.live import Live

    look = _remote(url, config, token, minutes) if url is not None else _local(config, minutes)
    if as_json:
        print(json.dumps(look(), ensure_ascii=False))
        return
    if not sys.stdout.isatty():
        Console(highlight=False, width=160).print(drawn(look()))
        return
    with Live(drawn(look()), auto_refresh=False, screen=True) as live:
        try:
            while True:
                time.sleep(EVERY)
                live.update(drawn(look()), refresh=True)
        except KeyboardInterrupt:
            return


def _remote(url: str, config: Path | None, token: str | None, minutes: int) -> Any:
    from gateway.cli.impersonate import read_api
    from gateway.cli.load_settings import api_address

    base = api_address(url, config)

    def look() -> "Json":
        return {
            "traffic": read_api(base, token, "traffic", {"minutes": minutes}),
            **read_api(base, token, "calls", {"limit": _SHOWN}),
        }

    return look


def _local(config: Path | None, minutes: int) -> Any:
    from msgspec import to_builtins

    from gateway.cli.load_settings import read_without_backends
    from gateway.state.audit_sqlite import FILE
    from gateway.state.call_history import CallFilter, CallHistory

    settings = read_without_backends(config)
    at = settings.database.url
    calls = CallHistory(Path(settings.data_dir) / FILE, at.get_secret_value() if at is not None else None)

    def look() -> "Json":
        seen = calls.traffic_now(None, minutes * 60, _SLOTS)
        shares = {f"p{share}_us": round(seen.percentile(share / 100)) for share in (50, 95, 99)}
        traffic = {**to_builtins(seen), "calls": seen.calls, **shares}
        return {"traffic": traffic, "calls": to_builtins(calls.find_now(CallFilter(limit=_SHOWN)))}

    return look


def drawn(seen: "Json") -> "RenderableType":
    """Only a running gateway knows of the calls that have not ended."""
    from rich.console import Group

    traffic: Json = seen["traffic"]
    parts: list[RenderableType] = [_head(traffic), _tools(traffic)]
    if seen.get("running"):
        parts.append(_running(seen["running"]))
    return Group(*parts, _calls(seen["calls"]))


def _head(traffic: "Json") -> "RenderableType":
    from rich.text import Text

    counts = [sum(each) for each in zip(traffic["ok"], traffic["refused"], traffic["failed"], strict=True)]
    most = max(*counts, 1)
    line = "".join(_BARS[-(-count * (len(_BARS) - 1) // most)] for count in counts)
    refused, failed = sum(traffic["refused"]), sum(traffic["failed"])
    minutes = traffic["width"] * len(counts) / 60
    return Text.assemble(
        ("Gatehouse", "bold"),
        f"  {traffic['calls']} calls in {minutes:g} min  ",
        (f"{refused} refused", "yellow" if refused else "dim"),
        "  ",
        (f"{failed} failed", "red" if failed else "dim"),
        f"\np50 {took(traffic['p50_us'])}  p95 {took(traffic['p95_us'])}  p99 {took(traffic['p99_us'])}\n",
        (line, "cyan"),
        "\n",
    )


def _tools(traffic: "Json") -> "RenderableType":
    table = _table("tool", "calls", "bad", "mean", "longest")
    for tool in traffic["tools"][:5]:
        cells = (str(tool["calls"]), str(tool["bad"]), took(tool["mean_us"]), took(tool["longest_us"]))
        table.add_row(_plain(tool["target"]), *cells)
    return table


def _running(running: "list[Json]") -> "RenderableType":
    table = _table("\nunder way", "\nfor", "\nwho", "\nid")
    keep_whole(table.columns[-1], (each["correlation_id"] for each in running))
    for each in running[:_SHOWN]:
        cells = (_plain(each["target"]), f"{each['seconds']:.1f} s", _plain(each["principal"]))
        table.add_row(*cells, _plain(each["correlation_id"], whole=True))
    return table


def _calls(calls: "list[Json]") -> "RenderableType":
    from rich.text import Text

    from gateway.state.call_history import class_of

    table = _table("\nUTC", "\noutcome", "\ntook", "\nwhat", "\nwho", "\nid")
    keep_whole(table.columns[-1], (each["correlation_id"] for each in calls))
    for each in calls:
        at = time.strftime("%H:%M:%S", time.gmtime(each["at"]))  # as the audit and traces have it
        what = each["target"] or each["method"]
        outcome = Text(each["outcome"], style=_COLOUR[class_of(each["outcome"])])
        cells = (_plain(what), _plain(each["principal"]), _plain(each["correlation_id"], whole=True))
        table.add_row(at, outcome, took(each["duration_us"]), *cells)
    return table


def _table(*columns: str) -> Any:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in columns:
        # Names of tools and people give way where there is no room: their cells are cut, not wrapped.
        table.add_column(name, no_wrap=name.strip() not in ("tool", "under way", "what", "who"))
    return table


def keep_whole(column: Any, ids: "Iterable[str]") -> None:
    """An id is for copying: on a narrow terminal the other columns give way."""
    column.width = min(max(map(len, ids), default=2), _LONGEST_ID)
    column.no_wrap, column.overflow = False, "fold"


def took(microseconds: float) -> str:
    if microseconds < 1000:
        return f"{microseconds:.0f} µs"
    return f"{microseconds / 1000:.1f} ms" if microseconds < 1_000_000 else f"{microseconds / 1e6:.1f} s"


def _plain(text: str, *, whole: bool = False) -> Any:
    """As it is: nothing that a client chose is markup, or can move the cursor."""
    from rich.text import Text

    shown = "".join(each if each.isprintable() else "�" for each in text)
    return Text(shown, overflow="fold") if whole else Text(shown, no_wrap=True, overflow="ellipsis")
