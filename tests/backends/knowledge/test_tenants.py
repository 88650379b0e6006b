"""Tests of tenant isolation: two tenants with equal data do not affect each other."""

from typing import Any


async def test_tenant_cannot_read_change_or_undo_data_of_another_tenant(memory: Any) -> None:
    other = await memory.in_other_tenant()
    mine = await memory("store", topic="launch", content="the plan", tags=["x"])
    fact = await memory("relate", subject="launch", predicate="on", object="monday")
    entity = await memory("upsert_entity", name="Launch")

    assert (await other("query", topic="launch"))["items"] == []
    assert (await other("query", tags=["x"]))["items"] == []
    assert (await other("query_graph", subject="launch"))["items"] == []
    assert (await other("history"))["items"] == []
    assert (await other("undo", count=100))["reverted"] == []
    for uri in ("knowledge://entries", "knowledge://graph/triples", "knowledge://history/transactions"):
        assert await other.read(uri) == {"resource_uri": uri, "as_of_tx_id": None, "items": [], "next_cursor": None}

    assert (await other.error("update", id=mine["id"], content="x"))["code"] == "not_found"
    assert (await other.error("delete", id=fact["id"], entity_type="triple"))["code"] == "not_found"
    assert "error" in await other.post("resources/read", {"uri": f"knowledge://entries/{mine['id']}"})
    own = await other("upsert_entity", name="Launch")
    assert own["created"]
    assert own["id"] != entity["id"]
    # Facts of one tenant do not conflict with facts of another.
    assert (await other("relate", subject="launch", predicate="on", object="friday"))["created"]
    assert await memory.contents(topic="plan") == ["the plan"]


async def test_conflicts_tasks_topics_and_cursors_are_isolated_by_tenant(memory: Any) -> None:
    other = await memory.in_other_tenant()
    await memory("relate", subject="a", predicate="b", object="c")
    conflict = await memory("relate", subject="a", predicate="b", object="d")
    refused = await other.error("resolve_conflict", conflict_id=conflict["conflict_id"], strategy="replace")
    assert refused["code"] == "not_found"
    task = await memory("ingest", content="some text\n\nand more")
    assert (await other.error("ingestion_status", task_id=task["task_id"]))["code"] == "not_found"
    for n in range(3):
        await memory("store", topic="secret topic", content=str(n))
    page = await memory("query", topic="secret topic", limit=1)
    assert (await other.error("query", topic="secret topic", limit=1, cursor=page["next_cursor"]))[
        "code"
    ] == "validation"
    ref = {"type": "ref/prompt", "name": "knowledge_retrieve-context"}
    params = {"ref": ref, "argument": {"name": "topic", "value": "sec"}}
    assert (await other.post("completion/complete", params))["result"]["completion"]["values"] == []


async def test_ranking_is_independent_of_other_tenants(memory: Any) -> None:
    other = await memory.in_other_tenant()
    for client in (memory, other):
        await client("store", topic="alpha", content="alpha beta")
        await client("store", topic="gamma", content="beta")
    before = (await memory("query", topic="alpha beta"))["items"]
    for n in range(30):
        await other("store", topic=f"beta {n}", content="beta")
    after = (await memory("query", topic="alpha beta"))["items"]
    assert [item["score_total"] for item in after] == [item["score_total"] for item in before]
