"""`python -m bench.tool_search`: tokens of the first `tools/list`, and how often search finds the right tool.

The tools are those of public servers, which are installed and started (`bench.tool_search_servers`), and of the modules
that ship. Each line of `tool_search_tasks.txt` is a task in words and the ids of the tools that fit it. A task counts
as found if one of them is among the first results. Ranking by words alone is compared with ranking by words and
meaning, and with SQLite's FTS5 on the same tools.
"""

import argparse
import asyncio
import json
import sqlite3
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import msgspec
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from bench.tool_search_servers import SERVERS
from gateway.catalogue.list_format import ListFormat, ToolPresentation
from gateway.catalogue.search.index import SearchIndex, SearchKind, to_document
from gateway.catalogue.search.meaning import MeaningRanker
from gateway.catalogue.search.ranking import words_of
from gateway.catalogue.search.view_search import BYTES_PER_TOKEN
from gateway.catalogue.snapshot import Snapshot, take_snapshot
from gateway.catalogue.view import View
from gateway.contract import MODERN, Json, Manifest
from gateway.errors import Fault, ForeignError
from gateway.settings import CommandBackend, Settings
from gateway.upstream.stdio.orphan_reaper import OrphanReaper
from gateway.wiring.backends import remote_backend
from gateway.wiring.list_reader import read_lists

_OUT: Final = Path(__file__).parent / "out"
_TASKS: Final = Path(__file__).with_name("tool_search_tasks.txt")
_PLACES: Final = (1, 3, 5, 10)
_TOOLS: Final[frozenset[SearchKind]] = frozenset({"tool"})
_START_SECONDS: Final = 120.0


async def read_public(reaper: OrphanReaper) -> dict[str, Snapshot]:
    """Start each public server once and read its lists. A server that does not start is named and left out."""
    found: dict[str, Snapshot] = {}
    for namespace, server in SERVERS.items():
        try:
            command, args = await asyncio.to_thread(server.command)
            entry = CommandBackend(command=command, args=tuple(args), env=dict(server.env))  # type: ignore[arg-type]
            backend = remote_backend(
                namespace,
                entry,
                Manifest(),
                info={"name": "bench", "version": "1"},
                max_bytes=1 << 26,
                orphan_reaper=reaper,
            )
            try:
                async with asyncio.timeout(_START_SECONDS):
                    found[namespace] = take_snapshot(backend, await backend.fetch_lists(None))
            finally:
                await backend.close()
        except (Fault, ForeignError, TimeoutError, OSError, StopIteration, RuntimeError) as exc:
            print(f"{namespace}: not started: {exc or type(exc).__name__}", file=sys.stderr)
    return found


async def read_shipped(folder: Path) -> dict[str, Snapshot]:
    names = ("core", "workflow", "knowledge", "launch")
    backends: Json = {name: {"module": f"backends.{name}"} for name in names}
    backends["roblox"] = {"module": "backends.roblox", "options": {"bridge_enabled": True}}
    backends["godot"] = {"module": "backends.godot", "options": {"roots": [str(folder)]}}
    return await read_lists(Settings.model_validate({"data_dir": folder, "backends": backends}))


def build_view(snapshots: dict[str, Snapshot]) -> View:
    return View(snapshots.values(), "underscore", ListFormat(page_size=100_000), _always, _always, presentation=_SEARCH)


_SEARCH: Final = ToolPresentation("search")


def _always(route: object) -> bool:
    return True


def tasks() -> list[tuple[str, frozenset[str]]]:
    lines = [line for line in _TASKS.read_text().splitlines() if line and not line.startswith("#")]
    return [(task, frozenset(ids.split())) for task, _, ids in (line.partition(" => ") for line in lines)]


class Fts5:
    """SQLite's full-text index with the same fields and weights, for comparison. Words are split as for ours."""

    def __init__(self, documents: list[Any], *, split: bool) -> None:
        self._split = split
        self._connection = sqlite3.connect(":memory:")
        self._connection.execute(
            "CREATE VIRTUAL TABLE tools USING fts5(name, namespace, title, description, uri, parameters, texts,"
            " tokenize = 'porter unicode61')"
        )
        for number, document in enumerate(documents):
            texts = [self._text(text) for _, text in document.fields]
            self._connection.execute(
                "INSERT INTO tools (rowid, name, namespace, title, description, uri, parameters,"
                " texts) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (number, *texts),
            )

    def _text(self, text: str) -> str:
        return " ".join(words_of(text)) if self._split else text

    def search(self, query: str, limit: int) -> list[int]:
        words = [word for word in self._text(query).replace('"', " ").split() if word.strip("'.,;:!?()")]
        match = " OR ".join(f'"{word}"' for word in words)
        rows = self._connection.execute(
            "SELECT rowid FROM tools WHERE tools MATCH ? ORDER BY bm25(tools, 3, 2, 2, 1, 1, 0.5, 0.25) LIMIT ?",
            (match, limit),
        )
        return [row[0] for row in rows]

    def close(self) -> None:
        self._connection.close()


def recall(ranks: list[int]) -> dict[str, float]:
    return {f"recall@{place}": sum(rank < place for rank in ranks) / len(ranks) for place in _PLACES}


async def measure(snapshots: dict[str, Snapshot]) -> Json:
    view = build_view(snapshots)
    index: SearchIndex = view.search.index
    hits = [hit for hit in index.hits if hit.kind == "tool"]
    known = {hit.route.canonical for hit in hits}
    labelled = [(task, ids & known) for task, ids in tasks()]
    lacking = [task for task, ids in labelled if not ids]
    usable = [(task, ids) for task, ids in labelled if ids]
    rows: dict[str, Json] = {}
    rankers: dict[str, MeaningRanker | None] = {"words (BM25)": None}
    if (ranker := MeaningRanker.create()) is not None:
        while not await ranker.search("warm up", index.texts, 1):
            await asyncio.sleep(0)
        rankers["words and meaning"] = ranker
    for title, each in rankers.items():
        ranks, seconds, missed = [], [], []
        for task, ids in usable:
            started = time.perf_counter()
            found = await index.search(task, 20, _TOOLS, None, each)
            seconds.append(time.perf_counter() - started)
            order = [hit.route.canonical for hit in found]
            ranks.append(next((place for place, id in enumerate(order) if id in ids), 99))
            if ranks[-1] >= 5:
                missed.append(f"{task} => {order[:3]}")
        seconds.sort()
        rows[title] = {**recall(ranks), "median_ms": seconds[len(seconds) // 2] * 1000, "missed": missed}
    documents = [to_document(hit.route.namespace, hit.definition) for hit in hits]
    for title, split in (("FTS5, porter", False), ("FTS5, our words", True)):
        with closing(Fts5(documents, split=split)) as fts:
            ranks = []
            for task, ids in usable:
                order = [hits[number].route.canonical for number in fts.search(task, 20)]
                ranks.append(next((place for place, id in enumerate(order) if id in ids), 99))
            rows[title] = recall(ranks)
    return {
        "servers": len(snapshots),
        "tools": len(hits),
        "tasks": len(usable),
        "tasks_without_their_tool": lacking,
        "tokens": _tokens(view),
        "ranking": rows,
    }


def _tokens(view: View) -> Json:
    whole = json.loads(view.page("tools/list", None, MODERN, "list"))["tools"]
    three = json.loads(view.page("tools/list", None, MODERN, "search"))["tools"]
    encode = msgspec.json.encode
    return {"list": len(encode(whole)) // BYTES_PER_TOKEN, "search": len(encode(three)) // BYTES_PER_TOKEN}


async def run(*, shipped_only: bool) -> Json:
    reaper = OrphanReaper()
    try:
        with tempfile.TemporaryDirectory(prefix="gatehouse-bench-") as folder:
            shipped = await read_shipped(Path(folder))
            public = {} if shipped_only else await read_public(reaper)
            answer = await measure({**public, **shipped})
            answer["tokens_shipped"] = _tokens(build_view(shipped))
            answer["tools_public"] = sum(len(each.lists.tools) for each in public.values())
            answer["servers_public"] = len(public)
            answer["tools_by_server"] = {name: len(each.lists.tools) for name, each in {**public, **shipped}.items()}
            return answer
    finally:
        reaper.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shipped", action="store_true", help="use the tools that ship alone; start no public server")
    answer = asyncio.run(run(shipped_only=parser.parse_args().shipped))
    _OUT.mkdir(exist_ok=True)
    (_OUT / "tool_search.json").write_text(json.dumps(answer, indent=2))
    console = Console()
    console.print(f"{answer['tools']} tools of {answer['servers']} servers, {answer['tasks']} tasks")
    tokens = Table("tools/list", "tokens, whole list", "tokens, search", box=SIMPLE)
    tokens.add_row("shipped modules", *(f"{answer['tokens_shipped'][key]:,}" for key in ("list", "search")))
    tokens.add_row("all", *(f"{answer['tokens'][key]:,}" for key in ("list", "search")))
    console.print(tokens)
    table = Table("ranking", *(f"recall@{place}" for place in _PLACES), "median, ms", box=SIMPLE)
    for title, row in answer["ranking"].items():
        latency = f"{row['median_ms']:.2f}" if "median_ms" in row else ""
        table.add_row(title, *(f"{row[f'recall@{place}']:.0%}" for place in _PLACES), latency)
    console.print(table)


if __name__ == "__main__":
    main()
