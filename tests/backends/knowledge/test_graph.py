"""Tests of the graph: triples, conflicts and their resolution, entities and aliases."""

from typing import Any

import pytest


def fact(*parts: str, **more: Any) -> dict[str, Any]:
    return dict(zip(("subject", "predicate", "object"), parts, strict=True)) | more


async def objects(memory: Any, **filters: Any) -> list[str]:
    return [item["object"] for item in (await memory("query_graph", **filters))["items"]]


async def test_triple_is_found_by_substrings(memory: Any) -> None:
    await memory("relate", **fact("Alice Smith", "works_at", "Acme Corp"))
    await memory("relate", **fact("Bob", "works_at", "Beta"))
    for filters in ({"subject": "smith"}, {"object": "ACME"}, {"subject": "li", "predicate": "_at"}, {"object": "c"}):
        assert await objects(memory, **filters) == ["Acme Corp"]
    assert await objects(memory, predicate="works") == ["Beta", "Acme Corp"]
    assert await objects(memory, subject="smith", object="beta") == []


@pytest.mark.parametrize("query", ["%", "_", "a%b", "100%", "%%%", "____"])
async def test_percent_and_underscore_match_literally(memory: Any, query: str) -> None:
    await memory("relate", **fact("x", "is", "plain text"))
    assert await objects(memory, object=query) == []
    await memory("relate", **fact("y", "is", f"<{query}>"))
    assert await objects(memory, object=query) == [f"<{query}>"]


async def test_relating_the_same_fact_again_changes_nothing(memory: Any) -> None:
    first = await memory("relate", **fact("a", "is", "b"))
    again = await memory("relate", **fact("A", "IS", " b "))
    assert (first["created"], again["created"]) == (True, False)
    assert again["id"] == first["id"]
    assert len((await memory("history"))["items"]) == 1


async def test_contradiction_returns_a_conflict_and_writes_nothing(memory: Any) -> None:
    known = await memory("relate", **fact("alice", "works_at", "acme"))
    conflict = await memory("relate", **fact("alice", "works_at", "beta", source="mail"))
    assert conflict["scope"] == "alice/works_at"
    assert conflict["existing"]["id"] == known["id"]
    assert conflict["incoming"]["object"] == "beta"
    assert conflict["candidate_resolutions"] == ["replace", "retain_both", "reject"]
    assert await objects(memory) == ["acme"]
    assert len((await memory("history"))["items"]) == 1
    shown = await memory.read(f"knowledge://conflicts/{conflict['conflict_id']}")
    assert shown["items"][0]["resolution"] is None


@pytest.mark.parametrize(
    ("strategy", "left"), [("replace", ["beta"]), ("retain_both", ["beta", "acme"]), ("reject", ["acme"])]
)
async def test_conflict_is_resolved_once_with_the_chosen_strategy(memory: Any, strategy: str, left: list[str]) -> None:
    await memory("relate", **fact("alice", "works_at", "acme"))
    conflict = await memory("relate", **fact("alice", "works_at", "beta"))
    settled = await memory("resolve_conflict", conflict_id=conflict["conflict_id"], strategy=strategy)
    assert await objects(memory) == left
    assert (settled["triple"] is None) == (strategy == "reject")
    again = await memory.error("resolve_conflict", conflict_id=conflict["conflict_id"], strategy=strategy)
    assert again["code"] == "conflict"


async def test_a_replacement_is_undone_in_one_step(memory: Any) -> None:
    await memory("relate", **fact("alice", "works_at", "acme"))
    conflict = await memory("relate", **fact("alice", "works_at", "beta"))
    await memory("resolve_conflict", conflict_id=conflict["conflict_id"], strategy="replace")
    await memory("undo")
    assert await objects(memory) == ["acme"]
    assert await objects(memory, object="acme") == ["acme"]
    assert await objects(memory, object="beta") == []


async def test_an_unknown_conflict_is_not_found(memory: Any) -> None:
    assert (await memory.error("resolve_conflict", conflict_id="nope", strategy="reject"))["code"] == "not_found"


async def test_values_at_different_times_do_not_contradict_each_other(memory: Any) -> None:
    await memory("relate", **fact("alice", "works_at", "acme", valid_to="2020-01-01"))
    assert (await memory("relate", **fact("alice", "works_at", "beta", valid_from="2020-01-01")))["created"]
    assert "conflict_id" in await memory("relate", **fact("alice", "works_at", "gamma", valid_from="2019-01-01"))
    assert await objects(memory, subject="alice") == ["beta"]
    assert await objects(memory, subject="alice", as_of="2019-06-01") == ["acme"]
    assert await objects(memory, subject="alice", as_of="any") == ["beta", "acme"]


async def test_multi_valued_predicate_has_no_conflicts(memory: Any) -> None:
    for value in ("python", "rust"):
        assert (await memory("relate", **fact("alice", "knows", value, multi=True)))["created"]
    assert await objects(memory, subject="alice") == ["rust", "python"]


async def test_upsert_creates_then_changes_then_keeps_the_value(memory: Any) -> None:
    created = await memory("upsert_triple", **fact("alice", "works_at", "acme"))
    changed = await memory("upsert_triple", **fact("alice", "works_at", "beta", confidence=0.7))
    same = await memory("upsert_triple", **fact("alice", "works_at", "beta", confidence=0.7))
    assert [created["created"], changed["created"], same["created"]] == [True, False, False]
    assert created["id"] == changed["id"] == same["id"]
    assert (changed["version"], same["version"], same["confidence"]) == (2, 2, 0.7)
    assert await objects(memory) == ["beta"]


async def test_upsert_changes_the_conflicting_value_among_several(memory: Any) -> None:
    await memory("relate", **fact("alice", "works_at", "acme"))
    conflict = await memory("relate", **fact("alice", "works_at", "beta"))
    await memory("resolve_conflict", conflict_id=conflict["conflict_id"], strategy="retain_both")
    await memory("upsert_triple", **fact("alice", "works_at", "gamma"))
    await memory("relate", **fact("bob", "works_at", "one"))
    await memory("update_triple", id=(await memory("query_graph", object="one"))["items"][0]["id"], object="two")
    assert await objects(memory, subject="alice") == ["beta", "gamma"]
    assert await objects(memory, subject="bob") == ["two"]


async def test_update_triple_changes_fields_by_id(memory: Any) -> None:
    created = await memory("relate", **fact("alice", "works_at", "acme"))
    after = await memory("update_triple", id=created["id"], object="beta", source="hr", expected_version=1)
    assert (after["object"], after["source"], after["version"]) == ("beta", "hr", 2)
    assert (await memory.error("update_triple", id=created["id"], object="x", expected_version=1))["code"] == "conflict"
    assert (await memory.error("update_triple", id=created["id"]))["code"] == "validation"
    assert (await memory.error("update_triple", id="nope", object="x"))["code"] == "not_found"
    assert await objects(memory, object="acme") == []


async def test_update_triple_that_contradicts_another_triple_is_rejected(memory: Any) -> None:
    await memory("relate", **fact("alice", "lives_in", "rome"))
    other = await memory("relate", **fact("alice", "born_in", "oslo"))
    error = await memory.error("update_triple", id=other["id"], predicate="lives_in")
    assert error["code"] == "conflict"


async def test_deleted_triple_is_not_found_and_can_be_created_again(memory: Any) -> None:
    created = await memory("relate", **fact("alice", "works_at", "acme"))
    await memory("delete", id=created["id"], entity_type="triple")
    assert await objects(memory) == []
    assert (await memory.error("delete", id=created["id"], entity_type="triple"))["code"] == "not_found"
    assert (await memory("relate", **fact("alice", "works_at", "beta")))["created"]


# ---- entities -----------------------------------------------------------------------------------------------------


async def test_entity_is_found_by_any_alias(memory: Any) -> None:
    created = await memory("upsert_entity", name="Kubernetes", aliases=["k8s", "KUBERNETES", "kube"])
    assert (created["created"], created["aliases"]) == (True, ["k8s", "kube"])
    known = await memory("upsert_entity", name="K8S", aliases=["the cluster"])
    assert (known["created"], known["id"], known["name"]) == (False, created["id"], "Kubernetes")
    assert known["aliases"] == ["k8s", "kube", "the cluster"]
    entry = await memory("store", topic="kube", content="x")
    assert entry["canonical_entity_id"] == created["id"]


async def test_name_of_another_entity_is_rejected(memory: Any) -> None:
    created = await memory("upsert_entity", name="Mercury planet", aliases=["Mercury"])
    error = await memory.error("upsert_entity", name="Mercury element", aliases=["mercury"])
    assert (error["code"], error["details"]["entity_id"]) == ("conflict", created["id"])
    assert len((await memory.read("knowledge://graph/entities"))["items"]) == 1


async def test_triples_are_found_and_conflict_under_any_entity_name(memory: Any) -> None:
    await memory("upsert_entity", name="Kubernetes", aliases=["k8s"])
    await memory("relate", **fact("Kubernetes", "version", "1.30"))
    assert await objects(memory, subject="k8s") == ["1.30"]
    assert "conflict_id" in await memory("relate", **fact("K8s", "version", "1.31"))


async def test_merge_moves_all_names_and_undo_restores_them(memory: Any) -> None:
    keep = await memory("upsert_entity", name="PostgreSQL", aliases=["pg"])
    other = await memory("upsert_entity", name="Postgres", aliases=["psql"])
    await memory("store", topic="psql", content="the client")
    await memory("relate", **fact("Postgres", "port", "5432"))
    dry_run = await memory("merge_entities", keep_id=keep["id"], merge_id=other["id"], dry_run=True)
    assert (dry_run["linked"], dry_run["dry_run"]) == ({"entries": 1, "triples": 1}, True)
    assert len((await memory.read("knowledge://graph/entities"))["items"]) == 2

    merged = await memory("merge_entities", keep_id=keep["id"], merge_id=other["id"])
    assert (merged["aliases"], merged["merged_count"]) == (["pg", "Postgres", "psql"], 2)
    assert await objects(memory, subject="pg") == ["5432"]
    assert (await memory("query", topic="client"))["items"][0]["canonical_entity_id"] == keep["id"]

    await memory("undo")
    assert await objects(memory, subject="pg") == []
    assert (await memory("query", topic="client"))["items"][0]["canonical_entity_id"] == other["id"]
    assert (await memory("upsert_entity", name="psql"))["id"] == other["id"]


async def test_merge_requires_two_existing_entities(memory: Any) -> None:
    one = await memory("upsert_entity", name="one")
    assert (await memory.error("merge_entities", keep_id=one["id"], merge_id=one["id"]))["code"] == "validation"
    assert (await memory.error("merge_entities", keep_id=one["id"], merge_id="nope"))["code"] == "not_found"


async def test_undoing_an_entity_creation_releases_its_names(memory: Any) -> None:
    first = await memory("upsert_entity", name="one", aliases=["uno"])
    await memory("undo")
    second = await memory("upsert_entity", name="uno")
    assert second["created"]
    assert second["id"] != first["id"]
