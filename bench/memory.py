"""`python -m bench.memory`: how fast `knowledge` answers when it remembers 50,000 entries and 200,000 triples."""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import PIPE
from typing import Any, Final

import yaml
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from bench.memory_rows import WORDS, fill, some_words
from bench.process import Server, free_port
from gateway.cli.client import Client
from gateway.cli.failure import Failure

_OUT: Final = Path(__file__).parent / "out"
_ENV: Final = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parent.parent)}
_BOUNDS: Final = {"read": 30.0, "write": 10.0}
"""The most that the 95th of a hundred calls may take, in ms."""
_GROWTH: Final = 2_000_000
"""The most that memory may grow in the second half of the calls."""
_WARM: Final = 20


@dataclass
class Taken:
    """Of the calls of one kind, each in ms: the server's CPU, and from the request to the answer."""

    effect: str
    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)

    def row(self, name: str) -> dict[str, Any]:
        both = {"cpu": self.cpu, "wall": self.wall}
        figures = {f"{what}_p{of}": round(_share(each, of), 2) for what, each in both.items() for of in (50, 95)}
        return {"call": name, "effect": self.effect, "calls": len(self.cpu), **figures}


def _share(figures: list[float], percent: int) -> float:
    return sorted(figures)[min(len(figures) - 1, len(figures) * percent // 100)]


class Desk:
    """Calls one after another, each measured."""

    def __init__(self, client: Client, server: Server) -> None:
        self._client, self._server = client, server
        self.taken: dict[str, Taken] = {}

    def read(self, name: str, tool: str, **arguments: Any) -> dict[str, Any]:
        return self._call(self.taken.setdefault(name, Taken("read")), tool, arguments)

    def write(self, tool: str, **arguments: Any) -> dict[str, Any]:
        return self._call(self.taken.setdefault(tool, Taken("write")), tool, arguments)

    def _call(self, taken: Taken, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        cpu, began = self._server.cpu_nanoseconds(), time.perf_counter()
        result = self._client.call(f"knowledge_{tool}", arguments)
        taken.wall.append((time.perf_counter() - began) * 1e3)
        taken.cpu.append((self._server.cpu_nanoseconds() - cpu) / 1e6)
        assert not result["isError"], result
        return result["structuredContent"]


def one_round(desk: Desk, chance: random.Random, topics: list[str], number: int) -> None:
    desk.read("query, two words", "query", topic=some_words(chance, 1), content=some_words(chance, 1))
    desk.read("query, rare words", "query", topic=" ".join(chance.sample(WORDS, 2)))
    desk.read("query, a topic", "query", topic=chance.choice(topics))
    desk.read("query, word and tag", "query", topic=some_words(chance, 1), tags=["seeded"])
    desk.read("query, newest", "query", tags=["seeded"])
    desk.read("query_graph, subject", "query_graph", subject=chance.choice(topics))
    desk.read("query_graph, parts", "query_graph", object=chance.choice(WORDS), predicate="relation_7")
    desk.read("history", "history")
    made = desk.write("store", topic=some_words(chance, 3), content=some_words(chance, 50), tags=["new"])
    desk.write("update", id=made["id"], content=some_words(chance, 50))
    desk.write("relate", subject=f"subject {number}", predicate="is", object=chance.choice(topics))
    desk.write("delete", id=made["id"])
    desk.write("undo")


def measure(folder: Path, options: argparse.Namespace, console: Console) -> dict[str, Any]:
    chance = random.Random(1)
    with _serving(folder) as (server, client):
        # The first call makes the tables.
        client.call("knowledge_store", {"topic": "first", "content": "first"})
    file = folder / "data" / "files" / "stores" / "default" / "knowledge.db"
    began = time.perf_counter()
    topics = fill(file, options.entries, options.triples, chance)
    size = file.stat().st_size / 1e6
    console.print(
        f"{options.entries} entries, {options.triples} triples, {size:.0f} MB, in {time.perf_counter() - began:.0f} s",
        style="dim",
    )
    with _serving(folder) as (server, client):
        warm = Desk(client, server)
        for number in range(_WARM):
            one_round(warm, chance, topics, -number)
        desk, half = Desk(client, server), 0
        for number in range(options.rounds):
            one_round(desk, chance, topics, number)
            if number == options.rounds // 2:
                half = server.rss_bytes()
        grown = server.rss_bytes() - half
    return {
        "entries": options.entries,
        "triples": options.triples,
        "megabytes": round(size),
        "load": round(os.getloadavg()[0], 2),
        "bounds_ms": _BOUNDS,
        "grown_bytes": grown,
        "rows": [taken.row(name) for name, taken in desk.taken.items()],
    }


@contextmanager
def _serving(folder: Path) -> Generator[tuple[Server, Client]]:
    port = free_port()
    config = folder / "gatehouse.yaml"
    settings = {
        "server": {"port": port},
        "data_dir": str(folder / "data"),
        "backends": {"knowledge": {"module": "backends.knowledge"}},
        "limits": {"calls": "1000000/minute"},
        "log": {"format": "json"},
    }
    config.write_text(yaml.safe_dump(settings))
    command = (sys.executable, "-m", "gateway")
    made = subprocess.run(
        (*command, "key", "create", "--config", str(config), "--subject", "bench"), env=_ENV, stdout=PIPE, check=True
    )
    server = Server((*command, "serve", "--config", str(config)), core=None, log=folder / "server.log", env=_ENV)
    try:
        with Client(f"http://127.0.0.1:{port}/mcp", made.stdout.decode().strip()) as client:
            _await_answer(client, server)
            yield server, client
    finally:
        server.stop()


def _await_answer(client: Client, server: Server) -> None:
    ends = time.monotonic() + 30
    while server.alive and time.monotonic() < ends:
        try:
            client.tools()
            return
        except Failure:
            time.sleep(0.05)
    raise SystemExit(f"the gateway did not start: {server.last_words()}")


def troubles(found: dict[str, Any]) -> list[str]:
    """A line for each bound that does not hold."""
    slow = [
        f"{row['call']}: p95 is {row['wall_p95']} ms, over {_BOUNDS[row['effect']]:g}"
        for row in found["rows"]
        if row["wall_p95"] > _BOUNDS[row["effect"]]
    ]
    grown = found["grown_bytes"]
    return [*slow, *([f"memory grew by {grown / 1e6:.1f} MB"] if grown > _GROWTH else [])]


def show(console: Console, found: dict[str, Any]) -> None:
    heads = ("call", "CPU p50 ms", "CPU p95 ms", "wall p50 ms", "wall p95 ms", "bound")
    table = Table(title="A large memory", box=SIMPLE, padding=(0, 0, 0, 1), pad_edge=False, title_justify="left")
    table.add_column(heads[0], no_wrap=True)
    for head in heads[1:]:
        table.add_column(head, justify="right")
    for row in found["rows"]:
        figures = (row[name] for name in ("cpu_p50", "cpu_p95", "wall_p50", "wall_p95"))
        table.add_row(row["call"], *(f"{figure:.1f}" for figure in figures), f"{_BOUNDS[row['effect']]:g}")
    console.print(table)
    console.print(
        f"CPU is that of the server for one call, wall from the request to its answer, one call at a time; load "
        f"{found['load']}. Memory grew by {found['grown_bytes'] / 1e6:.1f} MB in the second half.",
        style="dim",
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.memory", description=__doc__)
    parser.add_argument("--entries", type=int, default=50_000)
    parser.add_argument("--triples", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=100, help="of thirteen calls each")
    parser.add_argument("--assert", dest="hold", action="store_true", help="fail when a bound does not hold")
    options = parser.parse_args()
    console = Console()
    with tempfile.TemporaryDirectory(prefix="gatehouse-bench-") as folder:
        found = measure(Path(folder), options, console)
    show(console, found)
    _OUT.mkdir(parents=True, exist_ok=True)
    (_OUT / "memory.json").write_text(json.dumps(found, indent=2) + "\n")
    missed = troubles(found)
    for line in missed:
        console.print(line, style="red", markup=False)
    return 1 if options.hold and missed else 0


if __name__ == "__main__":
    sys.exit(main())
