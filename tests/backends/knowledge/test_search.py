"""Tests of entry search: words, graph, filters and paging."""

from typing import Any

import pytest


async def test_best_hit_has_a_lexical_score_of_one(memory: Any) -> None:
    await memory("store", topic="rollback", content="How to roll back a deployment within five minutes.")
    best = await memory("store", topic="deployment", content="A deployment is a release.")
    items = (await memory("query", topic="deployment"))["items"]
    assert items[0]["id"] == best["id"]
    assert items[0]["score_lexical"] == 1.0
    assert items[0]["score_total"] == 0.6
    assert 0 < items[1]["score_lexical"] < 1
    assert items[1]["score_total"] == pytest.approx(0.6 * items[1]["score_lexical"], abs=1e-5)
    assert all(item["score_semantic"] == 0 and item["graph_hops"] == 0 for item in items)


async def test_an_entry_one_triple_away_from_a_hit_is_found(memory: Any) -> None:
    await memory("store", topic="Checkout", content="Takes the payment.")
    near = await memory("store", topic="Ledger", content="Books every transfer.")
    await memory("store", topic="Elsewhere", content="Nothing to do with it.")
    await memory("relate", subject="checkout", predicate="writes_to", object="ledger")
    items = (await memory("query", topic="payment"))["items"]
    assert [item["topic"] for item in items] == ["Checkout", "Ledger"]
    assert items[1]["id"] == near["id"]
    assert (items[1]["score_graph"], items[1]["score_total"], items[1]["graph_hops"]) == (0.5, 0.2, 1)


async def test_graph_search_uses_all_names_of_an_entity(memory: Any) -> None:
    await memory("store", topic="k8s", content="The cluster.")
    await memory("store", topic="etcd", content="Keeps the state.")
    await memory("relate", subject="Kubernetes", predicate="needs", object="etcd")
    assert len((await memory("query", topic="cluster"))["items"]) == 1
    await memory("upsert_entity", name="Kubernetes", aliases=["k8s"])
    assert [item["topic"] for item in (await memory("query", topic="cluster"))["items"]] == ["k8s", "etcd"]


async def test_any_word_of_topic_or_content_matches(memory: Any) -> None:
    await memory("store", topic="alpha", content="one")
    await memory("store", topic="beta", content="two")
    assert sorted(await memory.contents(topic="alpha", content="two")) == ["one", "two"]


async def test_rare_word_outranks_common_words(memory: Any) -> None:
    for n in range(25):
        await memory("store", topic=f"note {n}", content=f"the common words again {n}")
    await memory("store", topic="note zebra", content="the common words and a zebra")
    items = (await memory("query", topic="the common zebra"))["items"]
    assert items[0]["topic"] == "note zebra"
    assert len((await memory("query", topic="the common"))["items"]) == 20


async def test_unknown_word_matches_as_a_prefix(memory: Any) -> None:
    await memory("store", topic="deployment", content="one")
    assert await memory.contents(topic="deploy") == ["one"]
    assert await memory.contents(topic="ployment") == []
    assert await memory.contents(topic="de") == []


async def test_search_ignores_accents_and_case(memory: Any) -> None:
    await memory("store", topic="Café", content="Crème brûlée")
    assert await memory.contents(topic="CAFE") == ["Crème brûlée"]
    assert await memory.contents(topic="brulee") == ["Crème brûlée"]


@pytest.mark.parametrize("query", ["->", "ünd", "本語", "100%", "snake_", "é"])
async def test_text_that_is_not_a_word_matches_as_a_substring(memory: Any, query: str) -> None:
    await memory("store", topic="signs", content="a -> b, gründlich, 日本語, 100%, snake_case, é!")
    await memory("store", topic="other", content="a - > b, 1000, snakeXcase")
    assert len(await memory.contents(topic=query)) == 1


@pytest.mark.parametrize("query", ['"', "AND", "NOT x", "a*", "topic:x", "(", "NEAR(a b)", "-", "^a", "'; --", "\\"])
async def test_index_operators_are_treated_as_text(memory: Any, query: str) -> None:
    await memory("store", topic="plain", content="nothing of that")
    assert "items" in await memory("query", topic=query)


async def test_tag_filter_requires_all_tags_and_fills_pages(memory: Any) -> None:
    for n in range(12):
        await memory("store", topic="release", content=str(n), tags=["x"] if n % 2 else ["x", "y"])
    pages = await memory.pages("query", topic="release", tags=["x", "y"], limit=4)
    assert [len(page) for page in pages] == [4, 2]
    assert {item["content"] for page in pages for item in page} == {"0", "2", "4", "6", "8", "10"}
    assert await memory.contents(tags=["y", "x"]) == ["10", "8", "6", "4", "2", "0"]


async def test_search_returns_only_entries_valid_at_the_requested_time(memory: Any) -> None:
    await memory("store", topic="host", content="old host", valid_to="2020-01-01")
    await memory("store", topic="host", content="new host", valid_from="2020-01-01")
    await memory("store", topic="host", content="future host", valid_from="2999-01-01")
    assert await memory.contents(topic="host") == ["new host"]
    assert await memory.contents(topic="host", as_of="2019-12-31T23:59:59Z") == ["old host"]
    assert await memory.contents(topic="host", as_of="2020-01-01") == ["new host"]
    assert sorted(await memory.contents(topic="host", as_of="any")) == ["future host", "new host", "old host"]
    assert (await memory.error("query", topic="host", as_of="yesterday"))["code"] == "validation"


async def test_query_without_text_lists_entries_newest_first(memory: Any) -> None:
    for n in range(5):
        await memory("store", topic="t", content=str(n))
    pages = await memory.pages("query", limit=2)
    assert [[item["content"] for item in page] for page in pages] == [["4", "3"], ["2", "1"], ["0"]]
    assert "score_total" not in pages[0][0]


@pytest.mark.parametrize("words", [{}, {"topic": "entry"}])
async def test_pages_neither_repeat_nor_skip_entries_during_concurrent_writes(memory: Any, words: Any) -> None:
    created = [(await memory("store", topic=f"entry {n}", content="entry " * (n + 1)))["id"] for n in range(12)]
    page = await memory("query", limit=5, **words)
    seen = [item["id"] for item in page["items"]]
    rest = [each for each in created if each not in seen]
    await memory("delete", id=rest[0])
    for n in range(5):
        await memory("store", topic="entry", content=f"entry of another writer {n}")
    while page["next_cursor"] is not None:
        page = await memory("query", limit=5, cursor=page["next_cursor"], **words)
        seen += [item["id"] for item in page["items"]]
    assert sorted(seen) == sorted(each for each in created if each != rest[0])


async def test_page_ends_early_when_its_items_are_large(memory: Any) -> None:
    for n in range(8):
        await memory("store", topic=f"big {n}", content="ä" * 100_000)
    for words in ({}, {"topic": "big"}):
        pages = await memory.pages("query", limit=200, **words)
        assert len(pages) > 1
        assert len({item["id"] for page in pages for item in page}) == 8


@pytest.mark.parametrize("cursor", ["", "x", "!!!", "MDFNN0hKMFJCSzc4UlE", "w6TDpMOk", "0000000000000000.1"])
async def test_forged_cursor_is_rejected(memory: Any, cursor: str) -> None:
    await memory("store", topic="t", content="c")
    for arguments in ({"topic": "t"}, {}):
        assert (await memory.error("query", cursor=cursor, **arguments))["code"] == "validation"
    assert (await memory.error("query_graph", cursor=cursor))["code"] == "validation"
    assert (await memory.error("history", cursor=cursor))["code"] == "validation"


async def test_cursor_of_another_search_is_rejected(memory: Any) -> None:
    for n in range(3):
        await memory("store", topic="t", content=str(n))
    page = await memory("query", topic="t", limit=1)
    assert (await memory.error("query", topic="u", limit=1, cursor=page["next_cursor"]))["code"] == "validation"


async def test_offset_argument_is_rejected(memory: Any) -> None:
    error = await memory.error("query", topic="t", offset=10)
    assert (error["code"], error["validation_path"]) == ("validation", "input.offset")


@pytest.mark.parametrize(
    ("stored", "sought"),
    [
        ("The service was deployed twice.", "deploy"),
        ("Our policies are strict.", "policy"),
        ("Connections are limited.", "connecting limits"),
    ],
)
async def test_search_finds_other_forms_of_a_word(memory: Any, stored: str, sought: str) -> None:
    await memory("store", topic="t", content=stored)
    await memory("store", topic="t", content="Something else about category politeness and connivance.")
    assert await memory.contents(topic=sought) == [stored]
