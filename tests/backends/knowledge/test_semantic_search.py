"""Tests of semantic search: the models of the extras, and the option `meaning`, which plugs in another one."""

import threading
from typing import Any

import pytest
from sqlalchemy import text

from backends.knowledge.search.index import Hit
from backends.knowledge.search.ranking import fuse
from backends.knowledge.sql import Condition
from gateway.contract import embedder_packages as packages
from tests.backends.knowledge.test_quotas import call


class Synonyms:
    """A semantic search with a single rule: "car" is similar to the topic "vehicle"."""

    async def similar(self, connection: Any, text_: str, condition: Condition, limit: int) -> list[Hit]:
        if "car" not in text_:
            return []
        found = text(
            f"SELECT number, topic_key FROM entries WHERE {condition.sql} AND topic_key = 'vehicle' LIMIT :most"
        )
        rows = await connection.execute(found, {**condition.values, "most": limit})
        return [Hit(number, key, 0.9) for number, key in rows]


SYNONYMS = Synonyms()


@pytest.fixture
def semantic_gateway(start: Any) -> Any:
    options = {"meaning": "tests.backends.knowledge.test_semantic_search:SYNONYMS"}
    return lambda: start(backends={"knowledge": {"module": "backends.knowledge", "options": options}})


async def test_semantic_hits_are_ranked_together_with_words_and_graph(semantic_gateway: Any) -> None:
    async with semantic_gateway() as gateway:
        await call(gateway, "store", topic="vehicle", content="Has four wheels.")
        await call(gateway, "store", topic="car", content="Is fast.")
        found = {each["topic"]: each for each in (await call(gateway, "query", topic="car"))["items"]}
        assert found["vehicle"]["score_semantic"] == 0.9
        assert found["vehicle"]["score_total"] == pytest.approx(0.5 * 0.9)
        assert found["car"]["score_total"] == pytest.approx(0.3 * found["car"]["score_lexical"])
        gone = await call(gateway, "query", topic="car", tags=["nowhere"])
        assert gone["items"] == []


async def test_without_semantic_search_only_words_match(start: Any) -> None:
    knowledge = {"module": "backends.knowledge", "options": {"semantic": False}}
    async with start(backends={"knowledge": knowledge}) as gateway:
        await call(gateway, "store", topic="vehicle", content="Has four wheels.")
        assert (await call(gateway, "query", topic="car"))["items"] == []


# ---- the models of the extras -------------------------------------------------------------------------------------

MODELS = [name for name, needed in packages.MODELS.items() if packages.installed(needed)]


@pytest.fixture(params=["minilm", "wordllama"])
def with_model(request: pytest.FixtureRequest, start: Any) -> Any:
    """Start a gateway with one of the models; `options` are further options."""
    if request.param not in MODELS:
        pytest.skip(f"the extra of {request.param} is not installed")

    def start_gateway(**options: Any) -> Any:
        knowledge = {"module": "backends.knowledge", "options": {"semantic": request.param, **options}}
        return start(backends={"knowledge": knowledge}, tenants={"default": {}, "other": {}})

    return start_gateway


SIGN_IN = "Users sign in with their e-mail address and a password."
NOTES = (SIGN_IN, "Parcels leave the warehouse the same day.", "Backups are kept for five weeks.")


async def first_hit(gateway: Any, text: str, **more: Any) -> str | None:
    items = (await call(gateway, "query", topic=text, **more))["items"]
    return items[0]["content"] if items else None


async def test_entry_is_found_by_its_meaning_without_a_common_word(with_model: Any) -> None:
    async with with_model() as gateway:
        for n, note in enumerate(NOTES):
            await call(gateway, "store", topic=f"note {n}", content=note)
        assert await first_hit(gateway, "login credentials") == SIGN_IN
        (hit, *_) = (await call(gateway, "query", topic="login credentials"))["items"]
        assert 0 < hit["score_semantic"] <= 1
        assert 0 < hit["score_total"] <= 1


async def test_meaning_follows_update_delete_and_undo(with_model: Any) -> None:
    async with with_model() as gateway:
        entry = await call(gateway, "store", topic="note", content=NOTES[1])
        assert await first_hit(gateway, "shipping of goods") == NOTES[1]
        await call(gateway, "update", id=entry["id"], content=SIGN_IN)
        assert await first_hit(gateway, "login credentials") == SIGN_IN
        await call(gateway, "delete", id=entry["id"])
        assert await first_hit(gateway, "login credentials") is None
        await call(gateway, "undo")
        assert await first_hit(gateway, "login credentials") == SIGN_IN


async def test_meaning_respects_tags_and_tenants(with_model: Any) -> None:
    async with with_model() as gateway:
        await call(gateway, "store", topic="note", content=SIGN_IN, tags=["auth"])
        assert await first_hit(gateway, "login credentials", tags=["auth"]) == SIGN_IN
        assert await first_hit(gateway, "login credentials", tags=["other"]) is None
        mallory = gateway.as_(await gateway.new_key("other", "mallory"))
        assert await first_hit(mallory, "login credentials") is None


async def test_entries_from_before_the_model_was_enabled_are_found(with_model: Any, start: Any) -> None:
    plain = {"module": "backends.knowledge", "options": {"semantic": False}}
    async with start(backends={"knowledge": plain}) as gateway:
        key = gateway.key
        await call(gateway, "store", topic="note", content=SIGN_IN)
    async with with_model() as gateway:
        assert await first_hit(gateway.as_(key), "login credentials") == SIGN_IN


async def test_memory_larger_than_the_cache_is_searched_in_batches(with_model: Any) -> None:
    async with with_model(vector_cache_bytes=0) as gateway:
        for n, note in enumerate(NOTES):
            await call(gateway, "store", topic=f"note {n}", content=note)
        for _ in range(2):
            assert await first_hit(gateway, "login credentials") == SIGN_IN


def embedder_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("knowledge-embedder")}


async def test_model_is_loaded_by_the_first_search_and_not_before(with_model: Any) -> None:
    async with with_model() as gateway:
        before = set(threading.enumerate())
        await call(gateway, "store", topic="note", content=SIGN_IN)
        assert embedder_threads() <= before
        await call(gateway, "query", topic="login")
        (thread,) = embedder_threads() - before
    thread.join(10)
    assert not thread.is_alive()


def test_exact_scan_equals_a_full_sort() -> None:
    vectors = pytest.importorskip("backends.knowledge.semantic.vectors")
    np = vectors.np
    rng = np.random.default_rng(1)
    found = rng.normal(size=(20_000, 32)).astype(np.float32)
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    table = vectors.VectorTable()
    codes = np.rint(found * 127).astype(np.int8)
    table.put([(n, n, code.tobytes()) for n, code in enumerate(codes)])
    table.put([(20_000, 5, codes[7].tobytes())])  # replaced
    codes[5] = codes[7]
    cosines = codes.astype(np.float32) @ found[7] / 127
    expected = sorted(range(20_000), key=lambda n: (-round(float(cosines[n]), 6), n))[:10]
    nearest = table.nearest(found[7], 10, 0.0)
    assert {number for number, _ in nearest} == set(expected)
    assert [number for number, _ in nearest[:2]] == [5, 7]
    assert len(table) == 20_000


def test_ranks_of_both_lists_are_fused() -> None:
    words = [Hit(1, "a", 1.0), Hit(2, "b", 0.9)]
    meaning = [Hit(2, "b", 0.8), Hit(3, "c", 0.7)]
    ranked = fuse(words, meaning, {4})
    assert [each.number for each in ranked] == [2, 3, 1, 4]
    assert ranked[0].total == pytest.approx(0.3 * 11 / 12 + 0.5)
    assert all(0 < each.total <= 1 for each in ranked)
