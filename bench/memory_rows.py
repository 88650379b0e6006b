"""Fills a knowledge database directly with SQL, much faster than through tool calls."""

import json
import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from backends.knowledge import ids
from backends.knowledge.text_keys import digest, fold

_NOW: Final = "2026-01-01T00:00:00.000Z"
WORDS: Final = [
    f"{a}{b}{c}"
    for a in ("ka", "lo", "mi", "tu", "re", "sa")
    for b in ("ran", "bel", "dos", "fin", "gul")
    for c in range(200)
]
# Zipf-like distribution: as in real text, few words are frequent and most are rare.
_WEIGHTS: Final = [1 / (rank + 1) for rank in range(len(WORDS))]


def random_words(rng: random.Random, count: int) -> str:
    return " ".join(rng.choices(WORDS, _WEIGHTS, k=count))


def fill(path: Path, entries: int, triples: int, rng: random.Random) -> list[str]:
    """Insert rows into the existing tables and return the topics of the entries. Triggers maintain the index."""
    with closing(sqlite3.connect(path)) as connection:
        rows = _Rows(connection, rng)
        topics = rows.entries(entries)
        rows.triples(triples, topics)
        rows.finish()
    return topics


class _Rows:
    def __init__(self, connection: sqlite3.Connection, rng: random.Random) -> None:
        self._connection = connection
        self._rng = rng
        ((self._last, self._number),) = connection.execute("SELECT last_id, last_number FROM clock")

    def entries(self, count: int) -> list[str]:
        topics: list[str] = []
        for _ in range(count):
            topic, content = random_words(self._rng, 3), random_words(self._rng, 50)
            entry = {"id": self._next_id(), "topic": topic, "content": content, **_provenance_fields()}
            keys = {"topic_key": fold(topic), "content_digest": digest(content), "tags": '["seeded"]'}
            self._insert("entries", entry | keys)
            self._insert("entry_tags", {"tag": "seeded", "entry_id": entry["id"]}, numbered=False)
            self._transaction("entry", entry | {"tags": ["seeded"]})
            topics.append(topic)
        return topics

    def triples(self, count: int, topics: list[str]) -> None:
        for number in range(count):
            parts = {
                "subject": self._rng.choice(topics),
                "predicate": f"relation_{number % 40}_{self._rng.randrange(100_000)}",
                "object": self._rng.choice(topics),
            }
            triple = {"id": self._next_id(), **parts, "multi": 0} | _provenance_fields()
            self._insert("triples", triple | {f"{part}_key": fold(text) for part, text in parts.items()})
            self._transaction("triple", triple)

    def finish(self) -> None:
        clock = (self._last, self._number, self._last)
        self._connection.execute("UPDATE clock SET last_id = ?, last_number = ?, last_transaction = ?", clock)
        self._connection.commit()
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _next_id(self) -> str:
        self._last = ids.next_id(self._last, 1_700_000_000_000)
        return self._last

    def _transaction(self, kind: str, after: dict[str, Any]) -> None:
        changes = json.dumps([{"kind": kind, "id": after["id"], "before": None, "after": after}])
        row = {"id": self._next_id(), "op": "CREATE", "entity_type": kind, "entity_id": after["id"], "actor": "seed"}
        self._insert("transactions", row | {"changes": changes, "recorded_at": _NOW}, numbered=False)

    def _insert(self, table: str, row: dict[str, Any], *, numbered: bool = True) -> None:
        if numbered:
            self._number += 1
            row = row | {"number": self._number}
        marks = ", ".join("?" for _ in row)
        self._connection.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", list(row.values()))


def _provenance_fields() -> dict[str, Any]:
    return {"actor": "seed", "version": 1, "recorded_at": _NOW, "updated_at": _NOW}
