"""`python -m bench.audit [RECORDS]`: measures writing and verifying a million audit records."""

import asyncio
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from gateway.state.audit_chain import AuditChains, AuditKey, ChainBreak, NumberedRow
from gateway.state.audit_sqlite import FILE, SqliteAuditTables, migrate_file

MAX_SECONDS = 60.0


def main() -> int:
    """Run the benchmark. Returns 1 when verification exceeds the limit or misses a tampered record."""
    records = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    key = AuditKey(bytes(32))
    with tempfile.TemporaryDirectory(prefix="gatehouse-audit-") as folder:
        path = asyncio.run(migrate_file(Path(folder)))
        with closing(SqliteAuditTables(path, key)) as audit_file:
            started = time.process_time()
            chains = AuditChains("bench", key)
            for group in _groups(records):
                linked, heads = chains.link(group)
                audit_file.write(chains.writer, linked, heads)
                chains.advance(heads)
            print(f"written   {records} records in {time.process_time() - started:6.1f} s of CPU")
            duration, broken = _verify(audit_file)
            print(f"verified  {records} records in {duration:6.1f} s (at most {MAX_SECONDS:g}), {len(broken)} broken")
            tampered = records * 3 // 4 // 2
            with closing(sqlite3.connect(Path(folder) / FILE)) as other, other:
                change = "UPDATE audit SET target = 'core.pinh' WHERE tenant = 'b' AND sequence = ?"
                other.execute(change, (tampered,))
            _, found = _verify(audit_file)
            print(f"one byte changed in record {tampered}: {found[0] if found else 'not found'}")
    passed = not broken and len(found) == 1 and found[0].sequence == tampered
    return 0 if passed and duration <= MAX_SECONDS else 1


def _groups(records: int) -> Iterator[list[NumberedRow]]:
    for first in range(0, records, 500):
        yield [_record(number) for number in range(first, min(first + 500, records))]


def _record(number: int) -> NumberedRow:
    tenant = "ab"[number % 2]
    context = '{"groups":["dev"],"scopes":["mcp:call","mcp:call:write","mcp:list"],"readonly":false,"suspended":false}'
    return (number + 1, 0, (
        1_700_000_000 + number / 100, tenant, f"{tenant}/user:alice", "key", f"{number:016x}", "tools/call",
        "core.ping", 2, "allow", "grant.call", "d" * 64, "ok", 123, "t" * 32, context, "", "",
    ))  # fmt: skip


def _verify(audit_file: SqliteAuditTables) -> tuple[float, list[ChainBreak]]:
    started = time.monotonic()
    broken = [each for each in audit_file.verify() if each is not None]
    return time.monotonic() - started, broken


if __name__ == "__main__":
    raise SystemExit(main())
