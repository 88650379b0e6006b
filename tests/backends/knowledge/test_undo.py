"""Tests of undo and history: newest first, all or none, recorded, and never below dependent changes."""

from typing import Any

import pytest


async def test_undoing_a_store_removes_the_entry(memory: Any) -> None:
    created = await memory("store", topic="t", content="c", tags=["x"])
    (store,) = (await memory("history"))["items"]
    undone = await memory("undo")
    assert undone["reverted"] == [store["id"]]
    assert await memory.contents() == await memory.contents(topic="c") == await memory.contents(tags=["x"]) == []
    assert (await memory.error("delete", id=created["id"]))["code"] == "not_found"


async def test_undoing_an_update_restores_the_old_values(memory: Any) -> None:
    created = await memory("store", topic="t", content="old", tags=["x"], source="s", valid_to="2999-01-01")
    await memory("update", id=created["id"], topic="u", content="new", tags=[], source=None, valid_to=None)
    await memory("undo")
    (item,) = (await memory("query", topic="old"))["items"]
    assert {name: item[name] for name in created} == {**created, "version": 3}
    assert await memory.contents(topic="new") == []
    assert await memory.contents(tags=["x"]) == ["old"]


async def test_undoing_a_delete_restores_the_entry(memory: Any) -> None:
    created = await memory("store", topic="t", content="c", tags=["x"])
    await memory("delete", id=created["id"])
    await memory("undo")
    assert await memory.contents(topic="c", tags=["x"]) == ["c"]
    (item,) = (await memory("query"))["items"]
    assert item["recorded_at"] == created["recorded_at"]


async def test_undo_is_recorded_and_does_not_repeat(memory: Any) -> None:
    await memory("store", topic="t", content="first")
    await memory("store", topic="t", content="second")
    one, two = await memory("undo"), await memory("undo")
    assert await memory("undo") == {"reverted": [], "revert_ids": []}
    assert one["reverted"] != two["reverted"]
    items = (await memory("history"))["items"]
    assert [item["op"] for item in items] == ["REVERT", "REVERT", "CREATE", "CREATE"]
    assert [item["reverts"] for item in items[:2]] == two["reverted"] + one["reverted"]
    assert [item["reverted_by"] for item in items[2:]] == one["revert_ids"] + two["revert_ids"]
    assert items[0]["before_snapshot"] == items[3]["after_snapshot"]
    assert items[0]["after_snapshot"] is items[3]["before_snapshot"] is None


async def test_several_transactions_are_undone_newest_first(memory: Any) -> None:
    created = await memory("store", topic="t", content="one")
    await memory("update", id=created["id"], content="two")
    await memory("update", id=created["id"], content="three")
    await memory("delete", id=created["id"])
    ids = [item["id"] for item in (await memory("history"))["items"]]
    assert (await memory("undo", count=3))["reverted"] == ids[:3]
    assert await memory.contents() == ["one"]
    assert (await memory("undo", count=100))["reverted"] == ids[3:]
    assert await memory.contents() == []


async def test_undo_by_actor_reverts_only_that_actors_transactions(memory: Any) -> None:
    bob = await memory.as_subject("bob")
    await memory("store", topic="t", content="of alice")
    await bob("store", topic="t", content="of bob")
    await memory("store", topic="t", content="of an agent", actor="agent-1")
    await bob("undo", actor="alice")
    assert sorted(await memory.contents()) == ["of an agent", "of bob"]
    await bob("undo", actor="agent-1", count=5)
    assert await memory.contents() == ["of bob"]
    assert (await memory("undo", actor="nobody"))["reverted"] == []
    assert (await memory("history", actor="bob"))["items"][0]["op"] == "REVERT"


async def test_transaction_with_dependent_later_changes_is_not_undone(memory: Any) -> None:
    bob = await memory.as_subject("bob")
    created = await memory("store", topic="t", content="one")
    untouched = await memory("store", topic="t", content="other")
    await bob("update", id=created["id"], content="two")
    last = (await memory("history", actor="bob"))["items"][0]["id"]
    error = await memory.error("undo", actor="alice", count=2)
    assert error["code"] == "conflict"
    assert error["details"]["blocked_by"] == [last]
    assert error["details"]["entity_id"] == created["id"]
    # All or none: the transaction that could have been undone is not undone either.
    assert sorted(await memory.contents()) == ["other", "two"]
    assert untouched["id"] in {item["id"] for item in (await memory("query"))["items"]}
    await bob("undo", actor="bob")
    assert len((await memory("undo", actor="alice", count=2))["reverted"]) == 2


async def test_undo_does_not_restore_a_triple_that_conflicts_with_a_newer_one(memory: Any) -> None:
    bob = await memory.as_subject("bob")
    old = await memory("relate", subject="alice", predicate="works_at", object="acme")
    await memory("delete", id=old["id"], entity_type="triple")
    new = await bob("relate", subject="alice", predicate="works_at", object="beta")
    error = await memory.error("undo", actor="alice")
    assert (error["code"], error["details"]["contradicted_by"]) == ("conflict", [new["id"]])


async def test_undo_of_a_merge_is_rejected_after_the_entity_changed(memory: Any) -> None:
    bob = await memory.as_subject("bob")
    one, two = [await bob("upsert_entity", name=name) for name in ("one", "two")]
    await memory("merge_entities", keep_id=one["id"], merge_id=two["id"])
    await bob("upsert_entity", name="one", aliases=["uno"])
    assert (await memory.error("undo", actor="alice"))["code"] == "conflict"


@pytest.mark.parametrize("count", [0, 101, 1.5, "1"])
async def test_invalid_count_is_rejected(memory: Any, count: Any) -> None:
    assert (await memory.error("undo", count=count))["code"] == "validation"


# ---- history ------------------------------------------------------------------------------------------------------


async def test_history_contains_snapshots_before_and_after(memory: Any) -> None:
    created = await memory("store", topic="t", content="old")
    await memory("update", id=created["id"], content="new", actor="agent-1")
    update, create = (await memory("history"))["items"]
    assert (create["op"], create["before_snapshot"]) == ("CREATE", None)
    assert (update["op"], update["actor"], update["entity_id"]) == ("UPDATE", "agent-1", created["id"])
    assert (update["before_snapshot"]["content"], update["after_snapshot"]["content"]) == ("old", "new")


async def test_history_filters_by_entity_id_and_type(memory: Any) -> None:
    one = await memory("store", topic="t", content="1")
    await memory("store", topic="t", content="2")
    fact = await memory("relate", subject="a", predicate="b", object="c")
    await memory("update", id=one["id"], content="3")
    own = (await memory("history", entity_id=one["id"]))["items"]
    assert [item["op"] for item in own] == ["UPDATE", "CREATE"]
    (of_triples,) = (await memory("history", entity_type="triple"))["items"]
    assert of_triples["entity_id"] == fact["id"]
    assert (await memory("history", entity_id="nope"))["items"] == []


async def test_history_is_paged(memory: Any) -> None:
    for n in range(5):
        await memory("store", topic="t", content=str(n))
    pages = await memory.pages("history", limit=2)
    contents = [item["after_snapshot"]["content"] for page in pages for item in page]
    assert contents == ["4", "3", "2", "1", "0"]
