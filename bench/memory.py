"""`python -m bench.memory`: measures the knowledge backend with 50,000 entries and 200,000 triples."""

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

from bench.memory_rows import WORDS, fill, random_words
from bench.process import Server, free_port
from gateway.cli.failure import CommandError
from gateway.cli.mcp_client import McpClient

_OUT: Final = Path(__file__).parent / "out"
_ENV: Final = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parent.parent)}
_BOUNDS: Final = {"read": 30.0, "write": 10.0}
"""Maximum p95 latency in ms."""
_GROWTH: Final = 2_000_000
"""Maximum growth of RSS, in bytes, in the second half of the calls."""
_WARM_UP_ROUNDS: Final = 20


@dataclass
class CallTimings:
    """Timings in ms of the calls of one kind: CPU of the server, and wall time from request to response."""

    effect: str
    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)

    def row(self, name: str) -> dict[str, Any]:
        series = {"cpu": self.cpu, "wall": self.wall}
        figures = {f"{kind}_p{of}": round(percentile(each, of), 2) for kind, each in series.items() for of in (50, 95)}
        return {"call": name, "effect": self.effect, "calls": len(self.cpu), **figures}


def percentile(figures: list[float], percent: int) -> float:
    return sorted(figures)[min(len(figures) - 1, len(figures) * percent // 100)]


class MeasuredClient:
    """Makes calls one after another and records the timings of each."""

    def __init__(self, client: McpClient, server: Server) -> None:
        self._client, self._server = client, server
        self.timings: dict[str, CallTimings] = {}

    def read(self, name: str, tool: str, **arguments: Any) -> dict[str, Any]:
        return self._call(self.timings.setdefault(name, CallTimings("read")), tool, arguments)

    def write(self, tool: str, **arguments: Any) -> dict[str, Any]:
        return self._call(self.timings.setdefault(tool, CallTimings("write")), tool, arguments)

    def _call(self, timings: CallTimings, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        cpu, began = self._server.cpu_nanoseconds(), time.perf_counter()
        result = self._client.call(f"knowledge_{tool}", arguments)
        timings.wall.append((time.perf_counter() - began) * 1e3)
        timings.cpu.append((self._server.cpu_nanoseconds() - cpu) / 1e6)
        assert not result["isError"], result
        return result["structuredContent"]


def one_round(measured: MeasuredClient, rng: random.Random, topics: list[str], number: int) -> None:
    measured.read("query, two words", "query", topic=random_words(rng, 1), content=random_words(rng, 1))
    measured.read("query, rare words", "query", topic=" ".join(rng.sample(WORDS, 2)))
    measured.read("query, a topic", "query", topic=rng.choice(topics))
    measured.read("query, word and tag", "query", topic=random_words(rng, 1), tags=["seeded"])
    measured.read("query, newest", "query", tags=["seeded"])
    measured.read("query_graph, subject", "query_graph", subject=rng.choice(topics))
    measured.read("query_graph, parts", "query_graph", object=rng.choice(WORDS), predicate="relation_7")
    measured.read("history", "history")
    entry = measured.write("store", topic=random_words(rng, 3), content=random_words(rng, 50), tags=["new"])
    measured.write("update", id=entry["id"], content=random_words(rng, 50))
    measured.write("relate", subject=f"subject {number}", predicate="is", object=rng.choice(topics))
    measured.write("delete", id=entry["id"])
    measured.write("undo")


def measure(folder: Path, options: argparse.Namespace, console: Console) -> dict[str, Any]:
    rng = random.Random(1)
    with run_gateway(folder, semantic=False) as (server, client):
        # The first call creates the tables.
        client.call("knowledge_store", {"topic": "first", "content": "first"})
    file = folder / "data" / "files" / "stores" / "default" / "knowledge.db"
    began = time.perf_counter()
    topics = fill(file, options.entries, options.triples, rng)
    size = file.stat().st_size / 1e6
    console.print(
        f"{options.entries} entries, {options.triples} triples, {size:.0f} MB, in {time.perf_counter() - began:.0f} s",
        style="dim",
    )
    with run_gateway(folder, semantic=False) as (server, client):
        warm_up = MeasuredClient(client, server)
        for number in range(_WARM_UP_ROUNDS):
            one_round(warm_up, rng, topics, -number)
        measured, half = MeasuredClient(client, server), 0
        for number in range(options.rounds):
            one_round(measured, rng, topics, number)
            if number == options.rounds // 2:
                half = server.rss_bytes()
        growth = server.rss_bytes() - half
    return {
        "entries": options.entries,
        "triples": options.triples,
        "megabytes": round(size),
        "load": round(os.getloadavg()[0], 2),
        "bounds_ms": _BOUNDS,
        "grown_bytes": growth,
        "rows": [timings.row(name) for name, timings in measured.timings.items()],
    }


@contextmanager
def run_gateway(folder: Path, **options: Any) -> Generator[tuple[Server, McpClient]]:
    port = free_port()
    config = folder / "gatehouse.yaml"
    settings = {
        "server": {"port": port},
        "data_dir": str(folder / "data"),
        "backends": {"knowledge": {"module": "backends.knowledge", "options": options}},
        "limits": {"calls": "1000000/minute"},
        "log": {"format": "json"},
    }
    config.write_text(yaml.safe_dump(settings))
    command = (sys.executable, "-m", "gateway")
    key = subprocess.run(
        (*command, "key", "create", "--config", str(config), "--subject", "bench"), env=_ENV, stdout=PIPE, check=True
    )
    server = Server((*command, "serve", "--config", str(config)), core=None, log=folder / "server.log", env=_ENV)
    try:
        with McpClient(f"http://127.0.0.1:{port}/mcp", key.stdout.decode().strip()) as client:
            _wait_until_ready(client, server)
            yield server, client
    finally:
        server.stop()


def _wait_until_ready(client: McpClient, server: Server) -> None:
    deadline = time.monotonic() + 30
    while server.is_alive and time.monotonic() < deadline:
        try:
            client.tools()
            return
        except CommandError:
            time.sleep(0.05)
    raise SystemExit(f"The gateway did not start. Last log line: {server.last_log_line()}")


def find_violations(results: dict[str, Any]) -> list[str]:
    """Return one line for each exceeded bound."""
    slow = [
        f"{row['call']}: p95 is {row['wall_p95']} ms, over {_BOUNDS[row['effect']]:g}"
        for row in results["rows"]
        if row["wall_p95"] > _BOUNDS[row["effect"]]
    ]
    growth = results["grown_bytes"]
    return [*slow, *([f"memory grew by {growth / 1e6:.1f} MB"] if growth > _GROWTH else [])]


def show(console: Console, results: dict[str, Any]) -> None:
    headers = ("call", "CPU p50 ms", "CPU p95 ms", "wall p50 ms", "wall p95 ms", "bound")
    table = Table(title="A large memory", box=SIMPLE, padding=(0, 0, 0, 1), pad_edge=False, title_justify="left")
    table.add_column(headers[0], no_wrap=True)
    for header in headers[1:]:
        table.add_column(header, justify="right")
    for row in results["rows"]:
        figures = (row[name] for name in ("cpu_p50", "cpu_p95", "wall_p50", "wall_p95"))
        table.add_row(row["call"], *(f"{figure:.1f}" for figure in figures), f"{_BOUNDS[row['effect']]:g}")
    console.print(table)
    console.print(
        f"CPU is that of the server for one call, wall from the request to its answer, one call at a time; load "
        f"{results['load']}. Memory grew by {results['grown_bytes'] / 1e6:.1f} MB in the second half.",
        style="dim",
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.memory", description=__doc__)
    parser.add_argument("--entries", type=int, default=50_000)
    parser.add_argument("--triples", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=100, help="rounds of thirteen calls each")
    parser.add_argument(
        "--assert", dest="check_bounds", action="store_true", help="exit with 1 when a bound is exceeded"
    )
    options = parser.parse_args()
    console = Console()
    with tempfile.TemporaryDirectory(prefix="gatehouse-bench-") as folder:
        results = measure(Path(folder), options, console)
    show(console, results)
    _OUT.mkdir(parents=True, exist_ok=True)
    (_OUT / "memory.json").write_text(json.dumps(results, indent=2) + "\n")
    violations = find_violations(results)
    for line in violations:
        console.print(line, style="red", markup=False)
    return 1 if options.check_bounds and violations else 0


if __name__ == "__main__":
    sys.exit(main())
