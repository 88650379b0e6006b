"""Entries: stored, corrected, deleted, each with its provenance and version."""

from typing import Any


async def test_a_stored_entry_comes_back_whole(memory: Any) -> None:
    made = await memory(
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
    assert made["tags"] == ["ops", "release"]
    assert (made["source"], made["actor"], made["confidence"]) == ("runbook", "agent-7", 0.92)
    assert (made["valid_from"], made["valid_to"]) == ("2026-02-10T00:00:00.000Z", None)
    assert made["version"] == 1
    (found,) = (await memory("query", topic="blue-green"))["items"]
    assert {name: found[name] for name in made} == made


async def test_without_an_actor_the_caller_is_the_actor(memory: Any) -> None:
    assert (await memory("store", topic="a", content="b"))["actor"] == "alice"
    named = await memory.result("store", {"topic": "a", "content": "b"}, meta={"actor": "agent-1"})
    assert named["structuredContent"]["actor"] == "agent-1"


async def test_ids_are_in_order_of_creation(memory: Any) -> None:
    made = [(await memory("store", topic="t", content=str(n)))["id"] for n in range(20)]
    assert made == sorted(made)
    assert all(len(each) == 26 for each in made)


async def test_an_update_changes_what_it_names_and_nothing_else(memory: Any) -> None:
    made = await memory("store", topic="t", content="old", tags=["a"], source="s", confidence=0.5)
    after = await memory("update", id=made["id"], content="new", confidence=None)
    changed = {"content": "new", "confidence": None, "version": 2, "updated_at": after["updated_at"]}
    assert after == {**made, **changed}
    assert await memory.contents(topic="old") == []
    assert await memory.contents(topic="new") == ["new"]


async def test_an_update_replaces_the_tags(memory: Any) -> None:
    made = await memory("store", topic="t", content="c", tags=["a", "b"])
    await memory("update", id=made["id"], tags=["c"])
    assert await memory.contents(tags=["a"]) == []
    assert await memory.contents(tags=["c"]) == ["c"]


async def test_an_update_of_another_version_is_refused(memory: Any) -> None:
    made = await memory("store", topic="t", content="c")
    await memory("update", id=made["id"], content="first", expected_version=1)
    error = await memory.error("update", id=made["id"], content="second", expected_version=1)
    assert error["code"] == "conflict"
    assert error["details"]["version"] == 2
    assert await memory.contents() == ["first"]


async def test_an_update_with_nothing_to_change_is_refused(memory: Any) -> None:
    made = await memory("store", topic="t", content="c")
    assert (await memory.error("update", id=made["id"]))["code"] == "validation"


async def test_a_validity_that_ends_before_it_begins_is_refused(memory: Any) -> None:
    error = await memory.error("store", topic="t", content="c", valid_from="2026-02-02", valid_to="2026-02-01")
    assert (error["code"], error["validation_path"]) == ("validation", "input.valid_to")
    made = await memory("store", topic="t", content="c", valid_from="2026-02-02")
    assert (await memory.error("update", id=made["id"], valid_to="2026-02-01"))["code"] == "validation"


async def test_a_deleted_entry_is_gone_and_cannot_be_deleted_again(memory: Any) -> None:
    made = await memory("store", topic="t", content="c", tags=["x"])
    assert await memory("delete", id=made["id"]) == {"id": made["id"], "entity_type": "entry", "deleted": True}
    assert await memory.contents() == []
    assert await memory.contents(tags=["x"]) == []
    assert await memory.contents(topic="c") == []
    assert (await memory.error("delete", id=made["id"]))["code"] == "not_found"
    assert (await memory.error("update", id=made["id"], content="d"))["code"] == "not_found"


async def test_a_delete_of_another_version_is_refused(memory: Any) -> None:
    made = await memory("store", topic="t", content="c")
    assert (await memory.error("delete", id=made["id"], expected_version=2))["code"] == "conflict"
    await memory("delete", id=made["id"], expected_version=1)


async def test_words_of_any_script_and_sign_are_kept(memory: Any) -> None:
    content = 'Grüße, 日本語 — "quotes" \\ \' % _ 🎉\nline'
    made = await memory("store", topic="Ω", content=content)
    assert (await memory.read(f"knowledge://entries/{made['id']}"))["items"][0]["content"] == content
