"""Tests of resources: paged lists, single items, and unknown URIs."""

from typing import Any

import pytest


async def test_list_is_paged_newest_first(memory: Any) -> None:
    created = [(await memory("store", topic="t", content=str(n)))["id"] for n in range(5)]
    uri, seen = "knowledge://entries?limit=2", []
    page = await memory.read(uri)
    while True:
        seen += [item["id"] for item in page["items"]]
        if page["next_cursor"] is None:
            break
        page = await memory.read(f"{uri}&cursor={page['next_cursor']}")
    assert seen == created[::-1]


async def test_read_reports_the_newest_visible_transaction(memory: Any) -> None:
    assert (await memory.read("knowledge://entries"))["as_of_tx_id"] is None
    await memory("store", topic="t", content="c")
    (newest,) = (await memory.read("knowledge://history/transactions"))["items"]
    assert (await memory.read("knowledge://graph/triples"))["as_of_tx_id"] == newest["id"]
    await memory("undo")
    items = (await memory.read("knowledge://history/transactions"))["items"]
    assert (await memory.read("knowledge://entries"))["as_of_tx_id"] == items[0]["id"]
    assert items[0]["op"] == "REVERT"


async def test_transaction_list_omits_snapshots_and_single_transaction_has_them(memory: Any) -> None:
    await memory("store", topic="t", content="c")
    (item,) = (await memory.read("knowledge://history/transactions"))["items"]
    assert not {"before_snapshot", "after_snapshot"} & set(item)
    (whole,) = (await memory.read(f"knowledge://history/transactions/{item['id']}"))["items"]
    assert whole["after_snapshot"]["content"] == "c"


async def test_every_item_type_is_readable_by_uri(memory: Any) -> None:
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


async def test_uri_of_a_search_result_lists_the_same_items(memory: Any) -> None:
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


async def test_list_contains_items_of_any_validity(memory: Any) -> None:
    await memory("store", topic="t", content="past", valid_to="2020-01-01")
    assert len((await memory.read("knowledge://entries"))["items"]) == 1
    assert (await memory.read("knowledge://entries?as_of=2021-01-01"))["items"] == []


@pytest.mark.parametrize(("limit", "shown"), [("0", 1), ("-5", 1), ("2", 2), ("9999999999999", 3), ("many", 3)])
async def test_limit_is_clamped(memory: Any, limit: str, shown: int) -> None:
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
async def test_unknown_uri_is_not_found(memory: Any, uri: str) -> None:
    answer = await memory.post("resources/read", {"uri": uri})
    assert answer["error"]["code"] == -32602
    assert answer["error"]["data"]["code"] == "not_found"
    assert answer["error"]["data"]["uri"] == uri


async def test_invalid_cursor_is_rejected(memory: Any) -> None:
    answer = await memory.post("resources/read", {"uri": "knowledge://entries?cursor=junk"})
    assert answer["error"]["data"]["code"] == "validation"


async def test_deleted_entry_is_not_readable(memory: Any) -> None:
    created = await memory("store", topic="t", content="c")
    await memory("delete", id=created["id"])
    assert "error" in await memory.post("resources/read", {"uri": f"knowledge://entries/{created['id']}"})


@pytest.mark.parametrize(
    ("query", "kind", "message"),
    [
        ("tags=a&" * 100, "too_large", "at most 64 query parameters"),
        ("topic=" + "%25" * 3000, "invalid_input", "8192"),
    ],
)
async def test_uri_with_too_many_parameters_or_too_long_is_rejected_with_a_message(
    memory: Any, query: str, kind: str, message: str
) -> None:
    answer = await memory.post("resources/read", {"uri": f"knowledge://entries?{query}"})
    assert answer["error"]["data"]["kind"] == kind
    assert message in answer["error"]["message"]


async def test_longest_allowed_uri_is_searched(memory: Any) -> None:
    query = "%E2%82%AC" * 900  # not an indexed word, so every entry is scanned
    await memory("store", topic="t", content="€" * 900)
    assert len((await memory.read(f"knowledge://entries?content={query}"))["items"]) == 1
