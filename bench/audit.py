"""How long a million audit records take to write and to verify. `python -m bench.audit [RECORDS]`."""

import asyncio
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from gateway.state.audit_chain import Break, Chains, Row
from gateway.state.audit_file import FILE, AuditFile, prepare

MOST_SECONDS = 60.0


def main() -> int:
    """1 when verifying takes more than a minute, or one changed byte is not found where it is."""
    records = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory(prefix="gatehouse-audit-") as folder:
        path = asyncio.run(prepare(Path(folder)))
        with closing(AuditFile(path)) as kept:
            began = time.process_time()
            chains = Chains("bench")
            for group in _groups(records):
                linked, heads = chains.linked(group)
                kept.write(chains.writer, linked, heads)
                chains.advance(heads)
            print(f"written   {records} records in {time.process_time() - began:6.1f} s of CPU")
            took, broken = _verified(kept)
            print(f"verified  {records} records in {took:6.1f} s (at most {MOST_SECONDS:g}), {len(broken)} broken")
            touched = records * 3 // 4 // 2
            with closing(sqlite3.connect(Path(folder) / FILE)) as other, other:
                change = "UPDATE audit SET target = 'core.pinh' WHERE tenant = 'b' AND sequence = ?"
                other.execute(change, (touched,))
            _, found = _verified(kept)
            print(f"one byte changed in record {touched}: {found[0] if found else 'not found'}")
    good = not broken and len(found) == 1 and found[0].sequence == touched
    return 0 if good and took <= MOST_SECONDS else 1


def _groups(records: int) -> Iterator[list[Row]]:
    for first in range(0, records, 500):
        yield [_record(number) for number in range(first, min(first + 500, records))]


def _record(number: int) -> Row:
    tenant = "ab"[number % 2]
    context = '{"groups":["dev"],"scopes":["mcp:call","mcp:call:write","mcp:list"],"readonly":false,"suspended":false}'
    return (
        1_700_000_000 + number / 100, tenant, f"{tenant}/user:alice", "key", f"{number:016x}", "tools/call",
        "core.ping", 2, "allow", "grant.call", "d" * 64, "ok", 123, "t" * 32, context, "", "",
    )  # fmt: skip


def _verified(kept: AuditFile) -> tuple[float, list[Break]]:
    began = time.monotonic()
    broken = [each for each in kept.verify() if each is not None]
    return time.monotonic() - began, broken


if __name__ == "__main__":
    raise SystemExit(main())
