"""`python -m bench.memory_recall`: recall of the knowledge backend with and without `semantic`, and latency by size.

Recall: 204 questions, each answered by one of 2,204 entries in other words. Latency: searches and writes in memories of
1,000, 10,000 and 100,000 entries; their vectors are random, since the time of a scan does not depend on their values.
"""

import argparse
import json
import os
import random
import secrets
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from matplotlib.figure import Figure
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from backends.knowledge import ids
from bench.memory import percentile, run_gateway
from bench.memory_corpus import generate, labelled_entries
from bench.memory_rows import fill, random_words
from gateway.cli.mcp_client import McpClient
from gateway.contract.embedder_packages import MODELS, installed

_OUT: Final = Path(__file__).parent / "out"
_DISTRACTORS: Final = 2_000
_PLACES: Final = (1, 5, 10)
_WARM_UP: Final = 5
_NOW: Final = "2026-01-01T00:00:00.000Z"
_WIDTHS: Final = {"minilm": ("minilm-l6-v2-int8", 384), "wordllama": ("wordllama-l2-supercat-256", 256)}
_TITLES: Final = {"words": "words only", "wordllama": "semantic-light (wordllama)", "minilm": "semantic (MiniLM)"}


def modes() -> list[str]:
    """Return the searches to compare: by words alone, and with each installed model."""
    return ["words", *(name for name in reversed(MODELS) if installed(MODELS[name]))]


# ---- recall -------------------------------------------------------------------------------------------------------


def measure_recall(folder: Path, mode: str) -> dict[str, Any]:
    labelled = labelled_entries()
    with run_gateway(folder, semantic=False if mode == "words" else mode) as (server, client):
        topics = _import_entries(client)
        idle = server.rss_bytes()
        began = time.perf_counter()
        _search(client, "first search")
        first = time.perf_counter() - began
        indexing = _wait_for_vectors(client)
        places, timings = [], []
        for entry in labelled:
            began = time.perf_counter()
            found = _search(client, entry.question)
            timings.append((time.perf_counter() - began) * 1e3)
            ranked = [topics.get(item["id"]) for item in found]
            places.append(ranked.index(entry.topic) + 1 if entry.topic in ranked else 0)
        return {
            "mode": mode,
            "questions": len(labelled),
            "entries": len(topics),
            **{f"recall_{n}": round(sum(0 < place <= n for place in places) / len(places), 3) for n in _PLACES},
            "query_p50_ms": round(percentile(timings, 50), 1),
            "query_p95_ms": round(percentile(timings, 95), 1),
            "first_search_s": round(first, 2),
            "indexing_s": round(indexing, 1),
            "rss_grown_mb": round((server.rss_bytes() - idle) / 1e6),
        }


def _import_entries(client: McpClient) -> dict[str, str]:
    """Store all entries, shuffled; return the topic of each labelled entry by id."""
    rows = [(entry.topic, entry.content, list[str]()) for entry in labelled_entries()]
    rows += [(entry.topic, entry.content, list(entry.tags)) for entry in generate(_DISTRACTORS)]
    random.Random(5).shuffle(rows)
    last, lines, topics = "", list[str](), dict[str, str]()
    for topic, content, tags in rows:
        last = ids.next_id(last, 1_700_000_000_000)
        times = {"version": 1, "recorded_at": _NOW, "updated_at": _NOW}
        empty = dict.fromkeys(("source", "actor", "confidence", "valid_from", "valid_to"))
        item = {"id": last, "topic": topic, "content": content, "tags": tags, **empty, **times}
        lines.append(json.dumps({"type": "entry", "item": item}))
        topics[last] = "" if tags else topic
    for start in range(0, len(lines), 1_000):
        result = client.call("knowledge_import", {"jsonl": "\n".join(lines[start : start + 1_000])})
        assert not result["isError"], result
    return topics


def _search(client: McpClient, text: str, **more: Any) -> list[dict[str, Any]]:
    result = client.call("knowledge_query", {"topic": text, "limit": max(_PLACES), **more})
    assert not result["isError"], result
    return result["structuredContent"]["items"]


def _wait_for_vectors(client: McpClient) -> float:
    """Wait until the background task has computed all vectors; return the seconds it took."""
    began = time.perf_counter()
    while _stats(client)["pending_vectors"] and _stats(client)["search"] != "words and graph":
        time.sleep(0.5)
    return time.perf_counter() - began


def _stats(client: McpClient) -> dict[str, Any]:
    answer = client.request("resources/read", {"uri": "knowledge://stats"}, "knowledge://stats")
    return json.loads(answer["contents"][0]["text"])["items"][0]


# ---- latency by size ----------------------------------------------------------------------------------------------


def measure_latency(folder: Path, size: int, rounds: int) -> list[dict[str, Any]]:
    """Fill one memory and measure it with each search."""
    rng = random.Random(2)
    with run_gateway(folder, semantic=False) as (_, client):
        client.call("knowledge_store", {"topic": "first", "content": "first"})
    file = folder / "data" / "files" / "stores" / "default" / "knowledge.db"
    topics = fill(file, size, 0, rng)
    return [_measure_mode(folder, file, mode, rng, topics, rounds) for mode in modes()]


def _measure_mode(
    folder: Path, file: Path, mode: str, rng: random.Random, topics: list[str], rounds: int
) -> dict[str, Any]:
    if mode != "words":
        _fill_vectors(file, mode)
    with run_gateway(folder, semantic=False if mode == "words" else mode) as (server, client):
        queries, writes = _time_calls(client, rng, topics, rounds)
        return {
            "mode": mode,
            "entries": len(topics),
            "megabytes": round(file.stat().st_size / 1e6),
            "rss_mb": round(server.rss_bytes() / 1e6),
            **{f"query_p{p}_ms": round(percentile(queries, p), 1) for p in (50, 95)},
            **{f"store_p{p}_ms": round(percentile(writes, p), 1) for p in (50, 95)},
        }


def _time_calls(
    client: McpClient, rng: random.Random, topics: list[str], rounds: int
) -> tuple[list[float], list[float]]:
    """Time searches, then writes. The first calls do not count: they load the model, vectors and statements."""

    def search() -> None:
        _search(client, f"{rng.choice(topics)} {random_words(rng, 3)}")

    def store() -> None:
        result = client.call("knowledge_store", {"topic": random_words(rng, 3), "content": random_words(rng, 50)})
        assert not result["isError"], result

    return _timings(search, rounds), _timings(store, rounds)


def _timings(call: Callable[[], None], rounds: int) -> list[float]:
    timings = list[float]()
    for _ in range(_WARM_UP + rounds):
        began = time.perf_counter()
        call()
        timings.append((time.perf_counter() - began) * 1e3)
    return timings[_WARM_UP:]


def _fill_vectors(file: Path, mode: str) -> None:
    model, width = _WIDTHS[mode]
    with closing(sqlite3.connect(file)) as connection:
        numbers = [number for (number,) in connection.execute("SELECT number FROM entries")]
        ((last,),) = connection.execute("SELECT last_number FROM clock")
        rows = ((number, model, last + at, secrets.token_bytes(width)) for at, number in enumerate(numbers, 1))
        connection.execute("DELETE FROM entry_vectors")
        connection.executemany("INSERT INTO entry_vectors (number, model, sequence, vector) VALUES (?, ?, ?, ?)", rows)
        connection.execute("DELETE FROM pending_vectors")
        connection.execute("UPDATE clock SET last_number = ?", (last + len(numbers) + 1,))
        connection.commit()


# ---- report -------------------------------------------------------------------------------------------------------


def show(console: Console, title: str, columns: dict[str, str], rows: list[dict[str, Any]]) -> None:
    table = Table(title=title, box=SIMPLE, padding=(0, 0, 0, 1), pad_edge=False, title_justify="left")
    for name in columns.values():
        table.add_column(name, justify="left" if name == "search" else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(_TITLES.get(str(row[key]), f"{row[key]:,}" if key != "mode" else row[key]) for key in columns))
    console.print(table)


def draw(path: Path, results: dict[str, Any]) -> None:
    mpl.use("Agg")
    figure: Any = Figure(figsize=(10, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    names = [_TITLES[row["mode"]] for row in results["recall"]]
    bars = left.barh(names, [row["recall_5"] for row in results["recall"]], color=["#8a8a8a", "#c58b2a", "#1f5fa8"])
    left.bar_label(bars, [f" {row['recall_5']:.2f}" for row in results["recall"]], fontsize=9)
    left.set(xlim=(0, 1), title=f"recall@5 of {results['recall'][0]['questions']} paraphrased questions")
    measured = dict.fromkeys(row["mode"] for row in results["latency"])
    for mode, colour in zip(measured, ("#8a8a8a", "#c58b2a", "#1f5fa8"), strict=False):
        rows = [row for row in results["latency"] if row["mode"] == mode]
        sizes = [row["entries"] for row in rows]
        right.plot(sizes, [row["query_p50_ms"] for row in rows], "o-", color=colour, label=_TITLES[mode])
        right.plot(sizes, [row["query_p95_ms"] for row in rows], "^--", color=colour, alpha=0.6)
    right.set(xscale="log", xlabel="entries", ylabel="ms", title="a search, p50 solid, p95 dashed")
    right.set_ylim(bottom=0)
    right.legend(fontsize=8, frameon=False)
    right.grid(axis="y", alpha=0.3)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=130)


_RECALL_COLUMNS: Final = {
    "mode": "search",
    **{f"recall_{n}": f"recall@{n}" for n in _PLACES},
    "query_p50_ms": "p50 ms",
    "query_p95_ms": "p95 ms",
    "first_search_s": "first search s",
    "indexing_s": "indexing s",
    "rss_grown_mb": "RSS + MB",
}
_LATENCY_COLUMNS: Final = {
    "mode": "search",
    "entries": "entries",
    "query_p50_ms": "search p50 ms",
    "query_p95_ms": "p95",
    "store_p50_ms": "store p50 ms",
    "store_p95_ms": "p95",
    "megabytes": "file MB",
    "rss_mb": "RSS MB",
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.memory_recall", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="*", default=[1_000, 10_000, 100_000])
    parser.add_argument("--rounds", type=int, default=60)
    options = parser.parse_args()
    console = Console(width=max(110, Console().width))
    results: dict[str, Any] = {"load": round(os.getloadavg()[0], 2), "recall": [], "latency": []}
    for mode in modes():
        with tempfile.TemporaryDirectory(prefix="gatehouse-bench-") as folder:
            results["recall"].append(measure_recall(Path(folder), mode))
    show(console, "Recall: questions in other words than their answers", _RECALL_COLUMNS, results["recall"])
    for size in options.sizes:
        with tempfile.TemporaryDirectory(prefix="gatehouse-bench-") as folder:
            results["latency"] += measure_latency(Path(folder), size, options.rounds)
    show(console, "Growth: one search and one write at a time", _LATENCY_COLUMNS, results["latency"])
    _OUT.mkdir(parents=True, exist_ok=True)
    (_OUT / "memory_recall.json").write_text(json.dumps(results, indent=2) + "\n")
    draw(_OUT / "memory_recall.png", results)
    console.print(f"written: {_OUT}/memory_recall.json, memory_recall.png; load {results['load']}", style="dim")
    return 0


if __name__ == "__main__":
    sys.exit(main())
