"""Tests of entries: store, update and delete, with provenance and versions."""

from typing import Any


async def test_stored_entry_is_returned_with_all_fields(memory: Any) -> None:
    created = await memory(
        "store",
        topic="deployment",
        content="Use blue-green deploys.",
        tags=["ops", " ops ", "release"],
        source="runbook",
        actor="agent-7",
        confidence=0.92,
        valid_from="2026-02-10",
        valid_to="forever",
    )
    assert created["tags"] == ["ops", "release"]
    assert (created["source"], created["actor"], created["confidence"]) == ("runbook", "agent-7", 0.92)
    assert (created["valid_from"], created["valid_to"]) == ("2026-02-10T00:00:00.000Z", None)
    assert created["version"] == 1
    (found,) = (await memory("query", topic="blue-green"))["items"]
    assert {name: found[name] for name in created} == created


async def test_actor_defaults_to_the_caller(memory: Any) -> None:
    assert (await memory("store", topic="a", content="b"))["actor"] == "alice"
    named = await memory.result("store", {"topic": "a", "content": "c"}, meta={"actor": "agent-1"})
    assert named["structuredContent"]["actor"] == "agent-1"


async def test_ids_sort_in_order_of_creation(memory: Any) -> None:
    created = [(await memory("store", topic="t", content=str(n)))["id"] for n in range(20)]
    assert created == sorted(created)
    assert all(len(each) == 26 for each in created)


async def test_update_changes_only_the_supplied_fields(memory: Any) -> None:
    created = await memory("store", topic="t", content="old", tags=["a"], source="s", confidence=0.5)
    after = await memory("update", id=created["id"], content="new", confidence=None)
    changed = {"content": "new", "confidence": None, "version": 2, "updated_at": after["updated_at"]}
    assert after == {**created, **changed}
    assert await memory.contents(topic="old") == []
    assert await memory.contents(topic="new") == ["new"]


async def test_an_update_replaces_the_tags(memory: Any) -> None:
    created = await memory("store", topic="t", content="c", tags=["a", "b"])
    await memory("update", id=created["id"], tags=["c"])
    assert await memory.contents(tags=["a"]) == []
    assert await memory.contents(tags=["c"]) == ["c"]


async def test_update_with_wrong_expected_version_is_rejected(memory: Any) -> None:
    created = await memory("store", topic="t", content="c")
    await memory("update", id=created["id"], content="first", expected_version=1)
    error = await memory.error("update", id=created["id"], content="second", expected_version=1)
    assert error["code"] == "conflict"
    assert error["details"]["version"] == 2
    assert await memory.contents() == ["first"]


async def test_update_without_changes_is_rejected(memory: Any) -> None:
    created = await memory("store", topic="t", content="c")
    assert (await memory.error("update", id=created["id"]))["code"] == "validation"


async def test_validity_that_ends_before_it_starts_is_rejected(memory: Any) -> None:
    error = await memory.error("store", topic="t", content="c", valid_from="2026-02-02", valid_to="2026-02-01")
    assert (error["code"], error["validation_path"]) == ("validation", "input.valid_to")
    created = await memory("store", topic="t", content="c", valid_from="2026-02-02")
    assert (await memory.error("update", id=created["id"], valid_to="2026-02-01"))["code"] == "validation"


async def test_deleted_entry_is_not_found_and_cannot_be_deleted_again(memory: Any) -> None:
    created = await memory("store", topic="t", content="c", tags=["x"])
    assert await memory("delete", id=created["id"]) == {"id": created["id"], "entity_type": "entry", "deleted": True}
    assert await memory.contents() == []
    assert await memory.contents(tags=["x"]) == []
    assert await memory.contents(topic="c") == []
    assert (await memory.error("delete", id=created["id"]))["code"] == "not_found"
    assert (await memory.error("update", id=created["id"], content="d"))["code"] == "not_found"


async def test_delete_with_wrong_expected_version_is_rejected(memory: Any) -> None:
    created = await memory("store", topic="t", content="c")
    assert (await memory.error("delete", id=created["id"], expected_version=2))["code"] == "conflict"
    await memory("delete", id=created["id"], expected_version=1)


async def test_any_unicode_text_is_stored_unchanged(memory: Any) -> None:
    content = 'Grüße, 日本語 — "quotes" \\ \' % _ 🎉\nline'
    created = await memory("store", topic="Ω", content=content)
    assert (await memory.read(f"knowledge://entries/{created['id']}"))["items"][0]["content"] == content
