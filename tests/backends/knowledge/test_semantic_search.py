"""Tests of the option `meaning`, which plugs in a semantic search."""

from typing import Any

import pytest
from sqlalchemy import text

from backends.knowledge.search.index import Hit
from backends.knowledge.sql import Condition
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
