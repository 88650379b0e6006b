"""Unit tests of the SQLite index, with limits small enough for few entries to exceed them."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from backends.knowledge import entries, manifest
from backends.knowledge.search.engines import index_for
from backends.knowledge.search.filters import entry_filter
from backends.knowledge.search.sqlite import Fts5
from backends.knowledge.sql import Condition
from backends.knowledge.unit_of_work import UnitOfWork
from gateway.errors import Fault, Kind
from gateway.state.stores import SqliteStores


@pytest.fixture
def open_unit(tmp_path: Path) -> Callable[[Fts5], Any]:
    """Return a context manager that opens a unit of work with the given index."""

    @asynccontextmanager
    async def open_with_index(index: Fts5) -> AsyncIterator[UnitOfWork]:
        stores = SqliteStores(tmp_path)
        async with stores.store("default", "knowledge", manifest.migrations).transaction() as connection:
            yield UnitOfWork(connection, index, "alice")
        await stores.close()

    return open_with_index


async def store(unit: UnitOfWork, topic: str, content: str, **more: Any) -> int:
    await entries.store(unit, {"topic": topic, "content": content, **more})
    await unit.end_writing()
    assert unit._writer_state is not None
    return unit._writer_state.last_number


async def search(unit: UnitOfWork, *words: str, limit: int = 50) -> list[int]:
    hits = await unit.index.search_words(unit.connection, words, entry_filter(unit, {}), limit)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert not hits or hits[0].score == 1.0
    return [hit.number for hit in hits]


async def test_selective_word_finds_all_its_entries_among_common_words(open_unit: Any) -> None:
    async with open_unit(Fts5(budget=10, newest=3)) as unit:
        rare = [await store(unit, "old", "common zebra"), await store(unit, "old", "a zebra")]
        for n in range(30):
            await store(unit, f"note {n}", "common words")
        assert set(await search(unit, "common", "zebra", limit=2)) == set(rare)
        assert (await search(unit, "common", "zebra"))[0] == rare[0]
        assert set(rare) < set(await search(unit, "common", "zebra"))


async def test_common_word_finds_topic_matches_and_the_newest_entries(open_unit: Any) -> None:
    async with open_unit(Fts5(budget=10, newest=3)) as unit:
        titled = await store(unit, "common ground", "something")
        created = [await store(unit, f"note {n}", "common words") for n in range(30)]
        assert await search(unit, "common") == [titled, *reversed(created[-3:])]


async def test_word_common_in_topics_finds_the_newest_entries(open_unit: Any) -> None:
    async with open_unit(Fts5(budget=10, newest=3)) as unit:
        created = [await store(unit, f"common {n}", "words") for n in range(30)]
        assert sorted(await search(unit, "common")) == created[-3:]


async def test_all_entries_are_found_within_the_budget(open_unit: Any) -> None:
    async with open_unit(Fts5(budget=31, newest=3)) as unit:
        created = [await store(unit, f"note {n}", "common words") for n in range(31)]
        assert sorted(await search(unit, "common")) == created


async def test_entries_excluded_by_the_condition_do_not_hide_matching_ones(open_unit: Any) -> None:
    async with open_unit(Fts5()) as unit:
        for n in range(150):
            await store(unit, "word word word", f"{n}", valid_to="2020-01-01")
        valid = await store(unit, "other", "one word among many others here")
        assert await search(unit, "word", limit=5) == [valid]


async def test_unknown_words_find_nothing(open_unit: Any) -> None:
    async with open_unit(Fts5()) as unit:
        await store(unit, "t", "c")
        assert await search(unit, "absent") == []
        assert await unit.index.search_words(unit.connection, [], Condition("1 = 1", {}), 5) == []


def test_unsupported_engine_raises_a_fault() -> None:
    with pytest.raises(Fault) as raised:
        index_for("oracle")
    assert raised.value.kind is Kind.UNSUPPORTED
