"""Simultaneous lookups become few queries, and no lookup returns a row read before it started."""

import asyncio
from collections.abc import Sequence

import pytest

from gateway.errors import Fault, Kind
from gateway.state.database import BatchRead


class Rows:
    """A table whose queries wait for `gate`."""

    def __init__(self) -> None:
        self.rows: dict[str, int] = {}
        self.queries: list[list[str]] = []
        self.gate = asyncio.Event()
        self.error: Fault | None = None

    async def find(self, ids: Sequence[str]) -> dict[str, int]:
        self.queries.append(list(ids))
        found = {id: self.rows[id] for id in ids if id in self.rows}
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return found


async def test_lookups_made_during_a_query_are_combined_into_the_next_query() -> None:
    table = Rows()
    table.rows = {f"k{n}": n for n in range(50)}
    reader = BatchRead(table.find)
    lookups = [asyncio.create_task(reader.get("k0"))]
    while not table.queries:
        await asyncio.sleep(0)
    lookups += [asyncio.create_task(reader.get(f"k{n}")) for n in range(1, 50)]
    lookups.append(asyncio.create_task(reader.get("unknown")))
    await asyncio.sleep(0)
    table.gate.set()
    assert await asyncio.gather(*lookups) == [*range(50), None]
    assert [len(each) for each in table.queries] == [1, 50]


async def test_lookup_made_during_a_query_returns_the_row_as_changed_since() -> None:
    table = Rows()
    table.rows = {"k": 1}
    reader = BatchRead(table.find)
    before = asyncio.create_task(reader.get("k"))
    while not table.queries:
        await asyncio.sleep(0)
    table.rows = {"k": 2}
    after = asyncio.create_task(reader.get("k"))
    await asyncio.sleep(0)
    table.gate.set()
    assert (await before, await after) == (1, 2)


async def test_failed_query_raises_for_all_its_lookups_but_not_for_later_ones() -> None:
    table = Rows()
    table.error = Fault(Kind.UNAVAILABLE, "Unavailable.")
    table.rows = {"a": 1, "b": 2}
    table.gate.set()
    reader = BatchRead(table.find)
    results = await asyncio.gather(reader.get("a"), reader.get("b"), return_exceptions=True)
    assert [type(each) for each in results] == [Fault, Fault]
    table.error = None
    assert await reader.get("a") == 1


async def test_cancelled_lookup_does_not_cancel_others_for_the_same_id() -> None:
    table = Rows()
    table.rows = {"k": 7}
    reader = BatchRead(table.find)
    first, second = (asyncio.create_task(reader.get("k")) for _ in range(2))
    while not table.queries:
        await asyncio.sleep(0)
    first.cancel()
    table.gate.set()
    assert await second == 7
    with pytest.raises(asyncio.CancelledError):
        await first
