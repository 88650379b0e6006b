"""Resources: lists in pages, single things by address, and nothing that is not there."""

from typing import Any

import pytest


async def test_a_list_is_read_in_pages_newest_first(memory: Any) -> None:
    made = [(await memory("store", topic="t", content=str(n)))["id"] for n in range(5)]
    uri, seen = "knowledge://entries?limit=2", []
    page = await memory.read(uri)
    while True:
        seen += [item["id"] for item in page["items"]]
        if page["next_cursor"] is None:
            break
        page = await memory.read(f"{uri}&cursor={page['next_cursor']}")
    assert seen == made[::-1]


async def test_a_read_says_which_transaction_it_has_seen(memory: Any) -> None:
    assert (await memory.read("knowledge://entries"))["as_of_tx_id"] is None
    await memory("store", topic="t", content="c")
    (newest,) = (await memory.read("knowledge://history/transactions"))["items"]
    assert (await memory.read("knowledge://graph/triples"))["as_of_tx_id"] == newest["id"]
    await memory("undo")
    items = (await memory.read("knowledge://history/transactions"))["items"]
    assert (await memory.read("knowledge://entries"))["as_of_tx_id"] == items[0]["id"]
    assert items[0]["op"] == "REVERT"


async def test_lists_of_transactions_leave_the_snapshots_out_and_one_has_them(memory: Any) -> None:
    await memory("store", topic="t", content="c")
    (item,) = (await memory.read("knowledge://history/transactions"))["items"]
    assert not {"before_snapshot", "after_snapshot"} & set(item)
    (whole,) = (await memory.read(f"knowledge://history/transactions/{item['id']}"))["items"]
    assert whole["after_snapshot"]["content"] == "c"


async def test_every_kind_of_thing_has_an_address(memory: Any) -> None:
    entry = await memory("store", topic="t", content="c")
    triple = await memory("relate", subject="a", predicate="b", object="c")
    entity = await memory("upsert_entity", name="e")
    task = await memory("ingest", content="some text")
    for uri, key, id_ in (
        ("knowledge://entries", "id", entry["id"]),
        ("knowledge://graph/triples", "id", triple["id"]),
        ("knowledge://graph/entities", "id", entity["id"]),
        ("knowledge://ingestions", "task_id", task["task_id"]),
    ):
        body = await memory.read(f"{uri}/{id_}")
        assert [item[key] for item in body["items"]] == [id_]
        assert body["next_cursor"] is None


async def test_the_address_in_a_search_result_reads_the_same_items(memory: Any) -> None:
    await memory("store", topic="deployment", content="one", tags=["a", "b"])
    await memory("store", topic="deployment", content="two", tags=["a"])
    result = await memory.result("query", {"topic": "deployment", "tags": ["a", "b"]})
    uri = result["content"][1]["resource"]["uri"]
    assert uri == "knowledge://entries?topic=deployment&tags=a&tags=b"
    body = await memory.read(uri)
    assert [item["content"] for item in body["items"]] == ["one"]
    await memory("relate", subject="a b", predicate="is", object="c&d")
    result = await memory.result("query_graph", {"object": "c&d"})
    assert len((await memory.read(result["content"][1]["resource"]["uri"]))["items"]) == 1


async def test_a_list_shows_what_is_valid_at_any_time(memory: Any) -> None:
    await memory("store", topic="t", content="past", valid_to="2020-01-01")
    assert len((await memory.read("knowledge://entries"))["items"]) == 1
    assert (await memory.read("knowledge://entries?as_of=2021-01-01"))["items"] == []


@pytest.mark.parametrize(("limit", "shown"), [("0", 1), ("-5", 1), ("2", 2), ("9999999999999", 3), ("many", 3)])
async def test_a_limit_is_brought_into_range(memory: Any, limit: str, shown: int) -> None:
    for n in range(3):
        await memory("store", topic="t", content=str(n))
    assert len((await memory.read(f"knowledge://entries?limit={limit}"))["items"]) == shown


@pytest.mark.parametrize(
    "uri",
    [
        "knowledge://entries/nope",
        "knowledge://graph/triples/nope",
        "knowledge://elsewhere",
        "knowledge://entries/a/b",
        "knowledge://conflicts",
        "knowledge://conflicts/nope",
        "knowledge://entries#x",
        "knowledge://",
    ],
)
async def test_what_is_not_there_is_unknown(memory: Any, uri: str) -> None:
    answer = await memory.post("resources/read", {"uri": uri})
    assert answer["error"]["code"] == -32602
    assert answer["error"]["data"]["code"] == "not_found"
    assert answer["error"]["data"]["uri"] == uri


async def test_a_bad_cursor_is_refused(memory: Any) -> None:
    answer = await memory.post("resources/read", {"uri": "knowledge://entries?cursor=junk"})
    assert answer["error"]["data"]["code"] == "validation"


async def test_a_deleted_entry_has_no_address(memory: Any) -> None:
    made = await memory("store", topic="t", content="c")
    await memory("delete", id=made["id"])
    assert "error" in await memory.post("resources/read", {"uri": f"knowledge://entries/{made['id']}"})


@pytest.mark.parametrize(
    ("asked", "kind", "told"),
    [
        ("tags=a&" * 100, "too_large", "at most 64 parts"),
        ("topic=" + "%25" * 3000, "invalid_input", "8192"),
    ],
)
async def test_an_address_that_asks_too_much_is_refused_with_words(
    memory: Any, asked: str, kind: str, told: str
) -> None:
    answer = await memory.post("resources/read", {"uri": f"knowledge://entries?{asked}"})
    assert answer["error"]["data"]["kind"] == kind
    assert told in answer["error"]["message"]


async def test_the_longest_address_is_searched_for(memory: Any) -> None:
    asked = "%E2%82%AC" * 900  # a sign that no index knows, so every entry is looked through
    await memory("store", topic="t", content="€" * 900)
    assert len((await memory.read(f"knowledge://entries?content={asked}"))["items"]) == 1
