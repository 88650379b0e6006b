"""The chain of audit records: what is linked to what, and whether it still holds. Values only, of any database."""

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
"""One record: `at` in Unix seconds, `target` a canonical id, `context` what policy saw. Never arguments."""
LINKED: Final = ("writer", "sequence", *COLUMNS, "hash")

Row = tuple[float, str, str, str, str, str, str, int | None, str, str, str, str, int, str, str, str, str]
"""One record, in the order of `COLUMNS`."""
Linked = tuple[Any, ...]
"""One record as it is kept, in the order of `LINKED`."""
Head = tuple[int, str]
"""The last record of a chain: its sequence number and hash."""

_encode: Final = msgspec.json.Encoder().encode


def link(before: str, writer: str, sequence: int, row: Sequence[Any]) -> str:
    """A record's hash: of the hash before it, and of everything the record says."""
    return sha256(_encode((before, writer, sequence, *row))).hexdigest()


class AuditChains:
    """The chains of one writer, a tenant each. Nothing counts as linked until it is committed."""

    def __init__(self, writer: str) -> None:
        self.writer = writer
        self._heads: dict[str, Head] = {}

    def linked(self, rows: Iterable[Row]) -> tuple[list[Linked], dict[str, Head]]:
        """The records as they are to be kept, and the heads that `advance` takes once they are."""
        heads: dict[str, Head] = {}
        linked: list[Linked] = []
        for row in rows:
            tenant = row[1]
            sequence, before = heads.get(tenant) or self._heads.get(tenant) or (0, "")
            hash = link(before, self.writer, sequence + 1, row)
            linked.append((self.writer, sequence + 1, *row, hash))
            heads[tenant] = (sequence + 1, hash)
        return linked, heads

    def advance(self, heads: Mapping[str, Head]) -> None:
        self._heads |= heads


@dataclass(frozen=True, slots=True)
class ChainAnchor:
    """What is known of a chain beside its records: the last one let go, and the last one written."""

    tenant: str
    writer: str
    pruned: Head
    last: Head


@dataclass(frozen=True, slots=True)
class ChainBreak:
    """The first record of a chain that does not hold."""

    tenant: str
    writer: str
    sequence: int
    why: str


def breaks(anchors: Mapping[tuple[str, str], ChainAnchor], records: Iterable[Linked]) -> Iterator[ChainBreak | None]:
    """For each record, in the order of tenant, writer and sequence, None if it holds; then for each chain cut short.

    After its first break a chain is not looked at any more.
    """
    heads: dict[tuple[str, str], Head] = {}
    broken: set[tuple[str, str]] = set()
    for record in records:
        writer, sequence, *row, hash = record
        chain = (row[1], writer)
        if chain in broken:
            continue
        anchor = anchors.get(chain)
        head = heads.get(chain) or (anchor.pruned if anchor else (0, ""))
        why = _wrong(anchor, head, sequence) or ("" if link(head[1], writer, sequence, row) == hash else _CHANGED)
        if why:
            broken.add(chain)
            yield ChainBreak(*chain, sequence, why)
        else:
            heads[chain] = (sequence, hash)
            yield None
    for chain, anchor in anchors.items():
        if chain not in broken and heads.get(chain, anchor.pruned) != anchor.last:
            yield ChainBreak(*chain, heads.get(chain, anchor.pruned)[0] + 1, "it and all after it are missing")


_CHANGED: Final = "it was changed after it was written"


def _wrong(anchor: ChainAnchor | None, head: Head, sequence: int) -> str:
    if anchor is None:
        return "it belongs to no known chain"
    return "" if sequence == head[0] + 1 else f"the one before it, {head[0] + 1}, is missing"
