"""The same entry stored again is recognized; near-duplicates are listed."""

from typing import Any

import pytest

TEXT = "The nightly backup of the billing database runs at two and is kept for five weeks."


@pytest.mark.parametrize(
    "again",
    [
        {"topic": "Backups", "content": TEXT, "tags": ["ops", "db"]},
        {"topic": "  backups ", "content": TEXT.replace(" ", "  "), "tags": ["DB", "ops"]},
    ],
)
async def test_same_entry_is_returned_as_duplicate_by_default(memory: Any, again: Any) -> None:
    first = await memory("store", topic="Backups", content=TEXT, tags=["ops", "db"])
    second = await memory("store", **again)
    assert second["id"] == second["duplicate_of"] == first["id"]
    assert len(await memory.contents()) == 1
    assert len((await memory("history"))["items"]) == 1


@pytest.mark.parametrize(
    "change", [{"topic": "other"}, {"content": TEXT.upper()}, {"tags": []}, {"valid_to": "2999-01-01"}]
)
async def test_entry_that_differs_is_not_a_duplicate(memory: Any, change: Any) -> None:
    entry = {"topic": "backups", "content": TEXT, "tags": ["ops"]}
    await memory("store", **entry)
    assert "duplicate_of" not in await memory("store", **{**entry, **change})
    assert len(await memory.contents()) == 2


async def test_duplicate_can_be_stored_or_update_the_known_entry(memory: Any) -> None:
    first = await memory("store", topic="backups", content=TEXT, confidence=0.5)
    stored = await memory("store", topic="backups", content=TEXT, on_duplicate="store")
    assert stored["id"] != first["id"]
    updated = await memory("store", topic="backups", content=TEXT, on_duplicate="update", confidence=0.9, source="wiki")
    assert (updated["id"], updated["version"]) == (first["id"], 2)
    assert (updated["confidence"], updated["source"], updated["duplicate_of"]) == (0.9, "wiki", first["id"])
    same = await memory("store", topic="backups", content=TEXT, on_duplicate="update", confidence=0.9)
    assert same["version"] == 2


async def test_deleted_entry_is_no_duplicate(memory: Any) -> None:
    first = await memory("store", topic="backups", content=TEXT)
    await memory("delete", id=first["id"])
    assert "duplicate_of" not in await memory("store", topic="backups", content=TEXT)


async def test_near_duplicate_is_stored_and_lists_similar_entries(memory: Any) -> None:
    first = await memory("store", topic="backups", content=TEXT)
    await memory("store", topic="holidays", content="Everybody has twenty-eight free days a year.")
    near = await memory("store", topic="backups", content=TEXT.replace("five", "six"))
    assert [each["id"] for each in near["similar_to"]] == [first["id"]]
    assert 0.6 <= near["similar_to"][0]["similarity"] < 1
    far = await memory("store", topic="lunch", content="On Thursdays the company pays for a meal.")
    assert "similar_to" not in far
