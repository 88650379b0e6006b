"""Hash chains of audit records: linking and verification, without I/O.

Each record's hash covers the record and the hash of its predecessor. It is keyed, and the key is not in the database:
write access to the database does not suffice to compute it. Both audit table implementations use this module.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b, sha256
from hmac import compare_digest
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
LINKED_COLUMNS: Final = ("writer", "sequence", "number", "intent", *COLUMNS, "hash")
INTENT: Final = "intent"
"""Outcome of a record that is committed before a call is sent to its backend."""
UNKNOWN: Final = "unknown"
"""Outcome shown for an intent without an end: the call is in progress, or the gateway stopped before it ended."""

Row = tuple[float, str, str, str, str, str, str, int | None, str, str, str, str, int, str, str, str, str]
"""One record before linking, in the order of `COLUMNS`."""
NumberedRow = tuple[int, int, Row]
"""Number of the record among all of its writer, number of its intent or 0, and the record."""
LinkedRow = tuple[Any, ...]
"""One stored record, in the order of `LINKED_COLUMNS`."""
ChainHead = tuple[int, str]
"""The last record of a chain: its sequence number and hash."""
Chain = tuple[str, str]
"""Tenant and writer."""

_encode: Final = msgspec.json.Encoder().encode
_KEYED: Final = "k"
"""First character of a keyed hash; the hashes of earlier versions are plain hexadecimal."""


class AuditKey:
    """Computes the keyed hashes of records, and seals of facts that are kept beside the records."""

    __slots__ = ("_key",)

    def __init__(self, secret: bytes) -> None:
        self._key = blake2b(secret, person=b"gatehouse audit").digest()

    def record_hash(self, previous_hash: str, record: Sequence[Any]) -> str:
        """Hash of a record (writer, sequence, number, intent and columns), which covers the previous hash."""
        return _KEYED + blake2b(_encode((previous_hash, *record)), key=self._key, digest_size=32).hexdigest()

    def seal(self, kind: str, *values: Any) -> str:
        return blake2b(_encode((kind, *values)), key=self._key, digest_size=32, person=b"seal").hexdigest()

    def is_sealed(self, seal: str, kind: str, *values: Any) -> bool:
        return compare_digest(seal, self.seal(kind, *values))


class AuditChains:
    """The chains of one writer, one per tenant. The heads move only when `advance` confirms a commit."""

    def __init__(self, writer: str, key: AuditKey) -> None:
        self.writer = writer
        self._key = key
        self._heads: dict[str, ChainHead] = {}

    @property
    def heads(self) -> dict[str, ChainHead]:
        """A copy of the ends of the committed chains."""
        return dict(self._heads)

    def link(self, rows: Iterable[NumberedRow]) -> tuple[list[LinkedRow], dict[str, ChainHead]]:
        """Return the linked records, and the new heads to pass to `advance` after the commit."""
        heads: dict[str, ChainHead] = {}
        linked: list[LinkedRow] = []
        for number, intent, row in rows:
            tenant = row[1]
            sequence, previous_hash = heads.get(tenant) or self._heads.get(tenant) or (0, "")
            record = (self.writer, sequence + 1, number, intent, *row)
            hash = self._key.record_hash(previous_hash, record)
            linked.append((*record, hash))
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
    pruned_seal: str = ""


@dataclass(frozen=True, slots=True)
class ChainBreak:
    """The first record of a chain that fails verification; `tenant` is empty if it is not known."""

    tenant: str
    writer: str
    sequence: int
    reason: str


@dataclass(frozen=True, slots=True)
class WriterAnchor:
    """What is known outside the database about the records of one writer at one time."""

    writer: str
    number: int
    at: float
    heads: Mapping[str, ChainHead]
    """Ends of the chains by tenant."""


@dataclass(frozen=True, slots=True)
class OutsideEvidence:
    """What is known outside the database."""

    anchors: Sequence[WriterAnchor] = ()
    counted: Mapping[str, int] = field(default_factory=dict[str, int])
    """Records that each stopped writer had queued."""
    unkeyed: Mapping[Chain, ChainHead] | None = None
    """Ends of the chains that earlier versions wrote without a key; None if they were not noted."""


def find_breaks(
    key: AuditKey,
    anchors: Mapping[Chain, ChainAnchor],
    records: Iterable[LinkedRow],
    evidence: OutsideEvidence = OutsideEvidence(),
    tenant: str | None = None,
) -> Iterator[ChainBreak | None]:
    """Verify records that are sorted by tenant, writer and sequence.

    Yields None for each valid record and a `ChainBreak` for the first invalid record of a chain; the rest of that chain
    is skipped. Finally yields a `ChainBreak` for each chain that ends too early and each writer with missing records.
    With `tenant`, `anchors` and `records` are those of this tenant only.
    """
    check = _Verification(key, anchors, evidence, tenant)
    for record in records:
        writer, sequence, number, intent, *row, hash = record
        chain = (row[1], writer)
        if chain in check.broken:
            continue
        reason = check.find_error(chain, sequence, (writer, sequence, number, intent, *row), hash)
        if reason:
            check.broken.add(chain)
            yield ChainBreak(*chain, sequence, reason)
        else:
            check.heads[chain] = (sequence, hash)
            check.numbers[writer] = max(check.numbers[writer], number)
            yield None
    yield from check.find_early_ends()
    if tenant is None:
        yield from check.find_missing_numbers()


_HASH_MISMATCH: Final = "it was changed after it was written"
_UNKEYED: Final = "it has no keyed hash"
_NOT_PRUNED: Final = "the records before it were not deleted by the gateway"


class _Verification:
    """State of one pass of `find_breaks`."""

    def __init__(
        self, key: AuditKey, anchors: Mapping[Chain, ChainAnchor], evidence: OutsideEvidence, only: str | None
    ) -> None:
        self._key = key
        self._anchors = anchors
        self._evidence = evidence
        self.heads: dict[Chain, ChainHead] = {}
        self.broken: set[Chain] = set()
        self.numbers: defaultdict[str, int] = defaultdict(int)
        self._expected: defaultdict[Chain, dict[int, str]] = defaultdict(dict)
        for anchor in evidence.anchors:
            for tenant, (sequence, hash) in anchor.heads.items():
                if only in (None, tenant):
                    self._expected[tenant, anchor.writer][sequence] = hash
        for chain, (sequence, hash) in (evidence.unkeyed or {}).items():
            if only in (None, chain[0]):
                self._expected[chain][sequence] = hash

    def find_error(self, chain: Chain, sequence: int, record: tuple[Any, ...], hash: str) -> str:
        anchor = self._anchors.get(chain)
        if anchor is None:
            return "it belongs to no known chain"
        head = self.heads.get(chain)
        if head is None:
            head = anchor.pruned
            if head[0] and not self._is_pruned(anchor):
                return _NOT_PRUNED
        if sequence != head[0] + 1:
            return f"the one before it, {head[0] + 1}, is missing"
        expected = self._expected[chain].pop(sequence, None) if chain in self._expected else None
        if expected is not None and expected != hash:
            return "it differs from the anchor outside the database"
        if hash.startswith(_KEYED):
            return "" if self._key.record_hash(head[1], record) == hash else _HASH_MISMATCH
        if head[1].startswith(_KEYED) or (self._evidence.unkeyed is not None and chain not in self._evidence.unkeyed):
            return _UNKEYED
        return "" if _unkeyed_hash(head[1], record) == hash else _HASH_MISMATCH

    def find_early_ends(self) -> Iterator[ChainBreak]:
        for chain, anchor in self._anchors.items():
            if chain in self.broken:
                continue
            end = self.heads.get(chain, anchor.pruned)
            if end != anchor.last:
                self.broken.add(chain)
                yield ChainBreak(*chain, end[0] + 1, "it and all after it are missing")
            elif chain not in self.heads and end[0] and not self._is_pruned(anchor):
                self.broken.add(chain)
                yield ChainBreak(*chain, end[0], _NOT_PRUNED)
        for chain, expected in self._expected.items():
            anchor = self._anchors.get(chain)
            pruned = anchor.pruned[0] if anchor is not None and self._is_pruned(anchor) else 0
            later = [sequence for sequence in expected if sequence > pruned]
            if later and chain not in self.broken:
                self.broken.add(chain)
                missing = self.heads.get(chain, (pruned, ""))[0] + 1
                reason = f"it is missing, and the anchor outside the database knows record {max(later)}"
                yield ChainBreak(*chain, missing, reason)

    def find_missing_numbers(self) -> Iterator[ChainBreak]:
        """A writer's chains together have as many records as it has numbered."""
        stored: defaultdict[str, int] = defaultdict(int)
        for (_, writer), anchor in self._anchors.items():
            stored[writer] += anchor.last[0]
        known = dict(self.numbers)
        for anchor in self._evidence.anchors:
            known[anchor.writer] = max(known.get(anchor.writer, 0), anchor.number)
        reported = {writer for _, writer in self.broken}
        for writer, number in known.items():
            if number > stored[writer] and writer not in reported:
                reported.add(writer)
                reason = f"{number - stored[writer]} records of this writer are missing"
                yield ChainBreak("", writer, stored[writer] + 1, reason)
        for writer, number in self._evidence.counted.items():
            if number > stored[writer] and writer not in reported:
                reason = f"{number - stored[writer]} records were not committed when the process ended"
                yield ChainBreak("", writer, stored[writer] + 1, reason)

    def _is_pruned(self, anchor: ChainAnchor) -> bool:
        if not anchor.pruned[1].startswith(_KEYED):
            return True  # earlier versions did not seal what they deleted
        return self._key.is_sealed(anchor.pruned_seal, "pruned", anchor.tenant, anchor.writer, *anchor.pruned)


def _unkeyed_hash(previous_hash: str, record: tuple[Any, ...]) -> str:
    """The hash of earlier versions, which had neither a key nor numbers."""
    writer, sequence, _, _, *row = record
    return sha256(_encode((previous_hash, writer, sequence, *row))).hexdigest()
