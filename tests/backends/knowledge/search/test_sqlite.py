"""The index of SQLite by itself, with bounds so small that a few entries are very many."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from backends.knowledge import entries, manifest
from backends.knowledge.search.engines import index_for
from backends.knowledge.search.filters import of_entries
from backends.knowledge.search.sqlite import Fts5
from backends.knowledge.sql import Condition
from backends.knowledge.unit_of_work import Book
from gateway.errors import Fault, Kind
from gateway.state.store import Stores


@pytest.fixture
def opened(tmp_path: Path) -> Callable[[Fts5], Any]:
    """A tenant's memory with that index, in one transaction."""

    @asynccontextmanager
    async def opening(index: Fts5) -> AsyncIterator[Book]:
        stores = Stores(tmp_path)
        async with stores.store("default", "knowledge", manifest.migrations).transaction() as connection:
            yield Book(connection, index, "alice")
        await stores.close()

    return opening


async def store(book: Book, topic: str, content: str, **more: Any) -> int:
    await entries.store(book, {"topic": topic, "content": content, **more})
    await book.end_writing()
    return book._hand.last_number


async def found(book: Book, *words: str, limit: int = 50) -> list[int]:
    hits = await book.index.lexical(book.connection, words, of_entries(book, {}), limit)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert not hits or hits[0].score == 1.0
    return [hit.number for hit in hits]


async def test_a_telling_word_finds_every_entry_that_has_it_however_common_the_others_are(opened: Any) -> None:
    async with opened(Fts5(budget=10, newest=3)) as book:
        rare = [await store(book, "old", "common zebra"), await store(book, "old", "a zebra")]
        for n in range(30):
            await store(book, f"note {n}", "common words")
        assert set(await found(book, "common", "zebra", limit=2)) == set(rare)
        assert (await found(book, "common", "zebra"))[0] == rare[0]
        assert set(rare) < set(await found(book, "common", "zebra"))


async def test_of_very_many_those_with_the_word_in_the_topic_and_the_newest_are_found(opened: Any) -> None:
    async with opened(Fts5(budget=10, newest=3)) as book:
        titled = await store(book, "common ground", "something")
        made = [await store(book, f"note {n}", "common words") for n in range(30)]
        assert await found(book, "common") == [titled, *reversed(made[-3:])]


async def test_a_word_that_very_many_topics_have_finds_the_newest(opened: Any) -> None:
    async with opened(Fts5(budget=10, newest=3)) as book:
        made = [await store(book, f"common {n}", "words") for n in range(30)]
        assert sorted(await found(book, "common")) == made[-3:]


async def test_within_the_budget_every_entry_is_found(opened: Any) -> None:
    async with opened(Fts5(budget=31, newest=3)) as book:
        made = [await store(book, f"note {n}", "common words") for n in range(31)]
        assert sorted(await found(book, "common")) == made


async def test_what_the_condition_leaves_out_makes_room_for_the_rest(opened: Any) -> None:
    async with opened(Fts5()) as book:
        for n in range(150):
            await store(book, "word word word", f"{n}", valid_to="2020-01-01")
        valid = await store(book, "other", "one word among many others here")
        assert await found(book, "word", limit=5) == [valid]


async def test_words_that_nobody_wrote_find_nothing(opened: Any) -> None:
    async with opened(Fts5()) as book:
        await store(book, "t", "c")
        assert await found(book, "absent") == []
        assert await book.index.lexical(book.connection, [], Condition("1 = 1", {}), 5) == []


def test_an_engine_without_an_index_is_named() -> None:
    with pytest.raises(Fault) as refused:
        index_for("oracle")
    assert refused.value.kind is Kind.UNSUPPORTED
