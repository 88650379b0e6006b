"""How fast a large memory answers: `python -m tests.backends.knowledge.scale [entries] [triples]`.

Not a test: it takes minutes, and what it measures depends on the machine.
"""

import asyncio
import json
import random
import resource
import sqlite3
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx

from backends.knowledge import ids
from backends.knowledge.keys import digest, fold
from tests.conftest import MODERN, run_gateway

NOW = "2026-01-01T00:00:00.000Z"
WORDS = [
    f"{a}{b}{c}"
    for a in ("ka", "lo", "mi", "tu", "re", "sa")
    for b in ("ran", "bel", "dos", "fin", "gul")
    for c in range(200)
]


class Seeder:
    """Writes the rows that so many calls would have written, in a fraction of the time."""

    def __init__(self, path: Path, chance: random.Random) -> None:
        self._connection = sqlite3.connect(path)
        self._chance = chance
        self._last = ""
        self._number = 0
        # As in real text, some words are everywhere and most are rare.
        self._weights = [1 / (rank + 1) for rank in range(len(WORDS))]

    def next_id(self) -> str:
        self._last = ids.next_id(self._last, 1_700_000_000_000)
        return self._last

    def text(self, words: int) -> str:
        return " ".join(self._chance.choices(WORDS, self._weights, k=words))

    def entries(self, count: int) -> list[str]:
        topics = []
        for _ in range(count):
            entry = {"id": self.next_id(), "topic": self.text(3), "content": self.text(50), "tags": ["seeded"]}
            topics.append(entry["topic"])
            self._insert(
                "entries",
                entry
                | _life()
                | {"topic_key": fold(entry["topic"]), "content_digest": digest(entry["content"]), "tags": '["seeded"]'},
            )
            self._insert("entry_tags", {"tag": "seeded", "entry_id": entry["id"]}, numbered=False)
            self._transaction("entry", entry | _life())
        return topics

    def triples(self, count: int, topics: list[str]) -> None:
        for number in range(count):
            parts = {
                "subject": self._chance.choice(topics),
                "predicate": f"relation_{number % 40}_{self._chance.randrange(100_000)}",
                "object": self._chance.choice(topics),
            }
            triple = {"id": self.next_id(), **parts, "multi": 0} | _life()
            self._insert("triples", triple | {f"{part}_key": fold(text) for part, text in parts.items()})
            self._transaction("triple", triple)

    def done(self) -> None:
        self._connection.execute(
            "UPDATE clock SET last_id = ?, last_number = ?, last_transaction = ?",
            (self._last, self._number, self._last),
        )
        self._connection.commit()
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._connection.close()

    def _transaction(self, kind: str, after: dict[str, Any]) -> None:
        changes = json.dumps([{"kind": kind, "id": after["id"], "before": None, "after": after}])
        row = {"id": self.next_id(), "op": "CREATE", "entity_type": kind, "entity_id": after["id"], "actor": "seed"}
        self._insert("transactions", row | {"changes": changes, "recorded_at": NOW}, numbered=False)
        self._insert("touches", {"entity_id": after["id"], "transaction_id": row["id"]}, numbered=False)

    def _insert(self, table: str, row: dict[str, Any], *, numbered: bool = True) -> None:
        if numbered:
            self._number += 1
            row = row | {"number": self._number}
        marks = ", ".join("?" for _ in row)
        self._connection.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", list(row.values()))


def _life() -> dict[str, Any]:
    return {"actor": "seed", "version": 1, "recorded_at": NOW, "updated_at": NOW}


class Clock:
    def __init__(self, gateway: Any, http: httpx.AsyncClient) -> None:
        self._gateway, self._http = gateway, http
        self.taken: dict[str, list[float]] = {}

    async def call(self, label: str, tool: str, **arguments: Any) -> dict[str, Any]:
        meta = {"io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": {}}
        name = f"knowledge_{tool}"
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
        headers = {
            "authorization": f"Bearer {self._gateway.key}",
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": MODERN,
            "mcp-method": "tools/call",
            "mcp-name": name,
        }
        params = {"name": name, "arguments": arguments, "_meta": meta}
        started = time.perf_counter()
        answer = (await self._http.post(self._gateway.url, json=body | {"params": params}, headers=headers)).json()
        self.taken.setdefault(label, []).append((time.perf_counter() - started) * 1000)
        assert not answer["result"]["isError"], answer
        return answer["result"]["structuredContent"]

    def report(self) -> None:
        print(f"{'ms':24}{'p50':>8}{'p95':>8}{'max':>8}")
        for label, taken in self.taken.items():
            ordered = sorted(taken)
            shown = (ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.95)], ordered[-1])
            print(f"{label:24}" + "".join(f"{each:8.1f}" for each in shown))


async def measure(clock: Clock, seeder: Seeder, topics: list[str], chance: random.Random, rounds: int) -> None:
    for n in range(rounds):
        await clock.call("query, two words", "query", topic=seeder.text(1), content=seeder.text(1))
        await clock.call("query, rare words", "query", topic=" ".join(chance.sample(WORDS, 2)))
        await clock.call("query, a topic", "query", topic=chance.choice(topics))
        await clock.call("query, tag and word", "query", topic=seeder.text(1), tags=["seeded"])
        await clock.call("query, newest", "query", tags=["seeded"])
        await clock.call("query_graph, subject", "query_graph", subject=chance.choice(topics))
        await clock.call("query_graph, part", "query_graph", object=chance.choice(WORDS), predicate="relation_7")
        await clock.call("history", "history")
        made = await clock.call("store", "store", topic=seeder.text(3), content=seeder.text(50), tags=["new"])
        await clock.call("update", "update", id=made["id"], content=seeder.text(50))
        await clock.call("relate", "relate", subject=f"subject {n}", predicate="is", object=chance.choice(topics))
        await clock.call("delete", "delete", id=made["id"])
        await clock.call("undo", "undo")


async def main(entries: int, triples: int) -> None:
    chance = random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        backends = {"knowledge": {"module": "backends.knowledge"}}
        settings: dict[str, Any] = {"backends": backends, "limits": {"calls": "1000000/minute"}}
        async with (
            run_gateway(Path(folder), **settings) as gateway,
            httpx.AsyncClient(timeout=60, verify=False) as http,
        ):
            clock = Clock(gateway, http)
            await clock.call("warm up", "store", topic="first", content="first")
            await clock.call("warm up", "undo")
            path = gateway.house.settings.files_dir / "stores" / "default" / "knowledge.db"
            with closing(sqlite3.connect(path)) as connection:
                for table in ("entries", "entry_tags", "transactions", "touches"):
                    connection.execute(f"DELETE FROM {table}")
                connection.commit()
            seeder = Seeder(path, chance)
            topics = seeder.entries(entries)
            seeder.triples(triples, topics)
            seeder.done()
            print(f"{entries} entries, {triples} triples, {path.stat().st_size / 1e6:.0f} MB")
            seeder = Seeder(Path(":memory:"), chance)
            await measure(clock, seeder, topics, chance, 30)
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            await measure(clock, seeder, topics, chance, 70)
            clock.report()
            print(f"peak memory grew by {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before} kB in 900 calls")


if __name__ == "__main__":
    asyncio.run(main(*(int(each) for each in (*sys.argv[1:], "50000", "200000")[:2])))
