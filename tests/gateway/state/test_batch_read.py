"""A crowd of look-ups becomes a few queries, and nobody is given what was read before they asked."""

import asyncio
from collections.abc import Sequence

import pytest

from gateway.errors import Fault, Kind
from gateway.state.database import BatchRead


class Rows:
    """A table whose queries wait until they are let through."""

    def __init__(self) -> None:
        self.rows: dict[str, int] = {}
        self.queries: list[list[str]] = []
        self.gate = asyncio.Event()
        self.wrong: Fault | None = None

    async def find(self, ids: Sequence[str]) -> dict[str, int]:
        self.queries.append(list(ids))
        found = {id: self.rows[id] for id in ids if id in self.rows}
        await self.gate.wait()
        if self.wrong is not None:
            raise self.wrong
        return found


async def test_whoever_asks_while_a_query_runs_is_answered_by_the_next_all_at_once() -> None:
    table = Rows()
    table.rows = {f"k{n}": n for n in range(50)}
    together = BatchRead(table.find)
    asking = [asyncio.create_task(together.get("k0"))]
    while not table.queries:
        await asyncio.sleep(0)
    asking += [asyncio.create_task(together.get(f"k{n}")) for n in range(1, 50)]
    asking.append(asyncio.create_task(together.get("nobody")))
    await asyncio.sleep(0)
    table.gate.set()
    assert await asyncio.gather(*asking) == [*range(50), None]
    assert [len(each) for each in table.queries] == [1, 50]


async def test_a_row_that_changed_while_a_query_ran_is_read_again_for_whoever_asked_after() -> None:
    table = Rows()
    table.rows = {"k": 1}
    together = BatchRead(table.find)
    before = asyncio.create_task(together.get("k"))
    while not table.queries:
        await asyncio.sleep(0)
    table.rows = {"k": 2}
    after = asyncio.create_task(together.get("k"))
    await asyncio.sleep(0)
    table.gate.set()
    assert (await before, await after) == (1, 2)


async def test_a_query_that_fails_is_told_to_all_who_waited_for_it_and_to_no_later_one() -> None:
    table = Rows()
    table.wrong = Fault(Kind.UNAVAILABLE, "away")
    table.rows = {"a": 1, "b": 2}
    table.gate.set()
    together = BatchRead(table.find)
    told = await asyncio.gather(together.get("a"), together.get("b"), return_exceptions=True)
    assert [type(each) for each in told] == [Fault, Fault]
    table.wrong = None
    assert await together.get("a") == 1


async def test_one_who_gives_up_takes_the_answer_from_nobody() -> None:
    table = Rows()
    table.rows = {"k": 7}
    together = BatchRead(table.find)
    first, second = (asyncio.create_task(together.get("k")) for _ in range(2))
    while not table.queries:
        await asyncio.sleep(0)
    first.cancel()
    table.gate.set()
    assert await second == 7
    with pytest.raises(asyncio.CancelledError):
        await first
