"""Hash chains of audit records: linking and verification, without I/O.

Each record's hash covers the record and the hash of its predecessor, so that a later change is detectable. Both audit
table implementations use this module.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

import msgspec

COLUMNS: Final = (
    "at",
    "tenant",
    "principal",
    "credential",
    "correlation_id",
    "method",
    "target",
    "effect",
    "decision",
    "policies",
    "arguments_digest",
    "outcome",
    "duration_us",
    "trace_id",
    "context",
    "approved",
    "actor",
)
"""Columns of one record. `at` is Unix time in seconds, `target` a canonical id, `context` the policy input.

Arguments are never recorded.
"""
LINKED_COLUMNS: Final = ("writer", "sequence", *COLUMNS, "hash")

Row = tuple[float, str, str, str, str, str, str, int | None, str, str, str, str, int, str, str, str, str]
"""One record before linking, in the order of `COLUMNS`."""
LinkedRow = tuple[Any, ...]
"""One stored record, in the order of `LINKED_COLUMNS`."""
ChainHead = tuple[int, str]
"""The last record of a chain: its sequence number and hash."""

_encode: Final = msgspec.json.Encoder().encode


def record_hash(previous_hash: str, writer: str, sequence: int, row: Sequence[Any]) -> str:
    """Return the hash of a record, which covers the previous hash and every column."""
    return sha256(_encode((previous_hash, writer, sequence, *row))).hexdigest()


class AuditChains:
    """The chains of one writer, one per tenant. The heads move only when `advance` confirms a commit."""

    def __init__(self, writer: str) -> None:
        self.writer = writer
        self._heads: dict[str, ChainHead] = {}

    def link(self, rows: Iterable[Row]) -> tuple[list[LinkedRow], dict[str, ChainHead]]:
        """Return the linked records, and the new heads to pass to `advance` after the commit."""
        heads: dict[str, ChainHead] = {}
        linked: list[LinkedRow] = []
        for row in rows:
            tenant = row[1]
            sequence, previous_hash = heads.get(tenant) or self._heads.get(tenant) or (0, "")
            hash = record_hash(previous_hash, self.writer, sequence + 1, row)
            linked.append((self.writer, sequence + 1, *row, hash))
            heads[tenant] = (sequence + 1, hash)
        return linked, heads

    def advance(self, heads: Mapping[str, ChainHead]) -> None:
        self._heads |= heads


@dataclass(frozen=True, slots=True)
class ChainAnchor:
    """Start and end of a chain as stored beside its records: the last pruned record and the last written one."""

    tenant: str
    writer: str
    pruned: ChainHead
    last: ChainHead


@dataclass(frozen=True, slots=True)
class ChainBreak:
    """The first record of a chain that fails verification."""

    tenant: str
    writer: str
    sequence: int
    reason: str


def find_breaks(
    anchors: Mapping[tuple[str, str], ChainAnchor], records: Iterable[LinkedRow]
) -> Iterator[ChainBreak | None]:
    """Verify records that are sorted by tenant, writer and sequence.

    Yields None for each valid record and a `ChainBreak` for the first invalid record of a chain; the rest of that chain
    is skipped. Finally yields a `ChainBreak` for each chain that ends too early.
    """
    heads: dict[tuple[str, str], ChainHead] = {}
    broken: set[tuple[str, str]] = set()
    for record in records:
        writer, sequence, *row, hash = record
        chain = (row[1], writer)
        if chain in broken:
            continue
        anchor = anchors.get(chain)
        head = heads.get(chain) or (anchor.pruned if anchor else (0, ""))
        reason = _sequence_error(anchor, head, sequence) or (
            "" if record_hash(head[1], writer, sequence, row) == hash else _HASH_MISMATCH
        )
        if reason:
            broken.add(chain)
            yield ChainBreak(*chain, sequence, reason)
        else:
            heads[chain] = (sequence, hash)
            yield None
    for chain, anchor in anchors.items():
        if chain not in broken and heads.get(chain, anchor.pruned) != anchor.last:
            yield ChainBreak(*chain, heads.get(chain, anchor.pruned)[0] + 1, "it and all after it are missing")


_HASH_MISMATCH: Final = "it was changed after it was written"


def _sequence_error(anchor: ChainAnchor | None, head: ChainHead, sequence: int) -> str:
    if anchor is None:
        return "it belongs to no known chain"
    return "" if sequence == head[0] + 1 else f"the one before it, {head[0] + 1}, is missing"
