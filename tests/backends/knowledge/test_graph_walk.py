"""`query_graph` with depth, direction and predicates walks the graph."""

from typing import Any

import pytest


async def chain(memory: Any) -> None:
    """a -> b -> c -> a, c -> d, and another relation a ~ z."""
    for subject, predicate, object_ in (
        ("a", "needs", "b"),
        ("b", "needs", "c"),
        ("c", "needs", "a"),
        ("c", "uses", "d"),
        ("a", "knows", "z"),
    ):
        await memory("relate", subject=subject, predicate=predicate, object=object_, multi=True)


async def walk(memory: Any, **arguments: Any) -> list[tuple[int, str, str]]:
    found = await memory("query_graph", **arguments)
    assert found["next_cursor"] is None
    return [(item["hops"], item["subject"], item["object"]) for item in found["items"]]


async def test_walk_reaches_each_triple_once_in_spite_of_a_cycle(memory: Any) -> None:
    await chain(memory)
    assert await walk(memory, subject="a", depth=1) == [(1, "a", "b"), (1, "a", "z")]
    everything = [(1, "a", "b"), (1, "a", "z"), (2, "b", "c"), (3, "c", "a"), (3, "c", "d")]
    assert await walk(memory, subject="a", depth=6) == everything


async def test_walk_follows_predicates_and_direction(memory: Any) -> None:
    await chain(memory)
    assert await walk(memory, subject="a", depth=2, predicates=["needs"]) == [(1, "a", "b"), (2, "b", "c")]
    assert await walk(memory, object="d", depth=2) == [(1, "c", "d"), (2, "b", "c")]
    assert await walk(memory, subject="b", depth=1, direction="both") == [(1, "b", "c"), (1, "a", "b")]
    assert await walk(memory, subject="b", direction="in") == [(1, "a", "b")]


async def test_walk_passes_through_the_names_of_an_entity(memory: Any) -> None:
    await memory("upsert_entity", name="Kubernetes", aliases=["k8s"])
    await memory("relate", subject="deployment", predicate="runs_on", object="k8s")
    await memory("relate", subject="Kubernetes", predicate="version", object="1.30")
    assert await walk(memory, subject="deployment", depth=2) == [
        (1, "deployment", "k8s"),
        (2, "Kubernetes", "1.30"),
    ]


async def test_walk_is_bounded_and_says_so(memory: Any) -> None:
    for n in range(30):
        await memory("relate", subject="hub", predicate="has", object=f"leaf {n}", multi=True)
    found = await memory("query_graph", subject="hub", depth=3, limit=10)
    assert (len(found["items"]), found["truncated"]) == (10, True)
    assert not (await memory("query_graph", subject="hub", depth=3, limit=30))["truncated"]


async def test_walk_sees_only_what_holds_at_the_time(memory: Any) -> None:
    await memory("relate", subject="a", predicate="p", object="b", valid_to="2020-01-01")
    assert await walk(memory, subject="a", depth=2) == []
    assert await walk(memory, subject="a", depth=2, as_of="2019-01-01") == [(1, "a", "b")]


@pytest.mark.parametrize(
    "arguments",
    [{}, {"subject": "a", "object": "b"}, {"subject": "a", "predicate": "p"}, {"subject": "a", "depth": 99}],
)
async def test_walk_without_a_single_start_is_rejected(memory: Any, arguments: Any) -> None:
    assert (await memory.error("query_graph", **{"depth": 2, **arguments}))["code"] == "validation"


async def test_fact_of_an_entry_keeps_its_source(memory: Any) -> None:
    sourced = await memory("store", topic="t", content="Alice works at Acme.", source="hr.pdf")
    plain = await memory("store", topic="t", content="Bob works at Beta.")
    fact = await memory("relate", subject="alice", predicate="works_at", object="acme", entry_id=sourced["id"])
    other = await memory("relate", subject="bob", predicate="works_at", object="beta", entry_id=plain["id"])
    assert (fact["entry_id"], fact["source"], fact["inferred"]) == (sourced["id"], "hr.pdf", False)
    assert other["source"] == f"knowledge://entries/{plain['id']}"
    found = (await memory("query_graph", entry_id=sourced["id"]))["items"]
    assert [item["id"] for item in found] == [fact["id"]]
    error = await memory.error("relate", subject="x", predicate="y", object="z", entry_id="nope")
    assert error["code"] == "not_found"


async def test_cursor_of_entries_is_rejected_for_triples(memory: Any) -> None:
    for n in range(3):
        await memory("store", topic="t", content=str(n))
        await memory("relate", subject=f"s{n}", predicate="p", object="o")
    cursor = (await memory("query", limit=1))["next_cursor"]
    error = await memory.error("query_graph", limit=1, cursor=cursor)
    assert error["code"] == "validation"
    assert error["message"] == "The cursor belongs to a list of entries, not of triples."
    listed = (await memory.read("knowledge://graph/triples?limit=1"))["next_cursor"]
    assert (await memory.error("query", cursor=listed))["code"] == "validation"
