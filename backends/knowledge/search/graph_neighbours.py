"""Graph search: finds entries one triple away from the hits of a search."""

import json
from collections.abc import Iterable
from typing import Final

from backends.knowledge.search.filters import active_at
from backends.knowledge.search.index import Hit
from backends.knowledge.sql import Condition, statement
from backends.knowledge.unit_of_work import UnitOfWork
from gateway.contract import Json

_MAX_SEEDS: Final = 10
_MAX_TRIPLES: Final = 100
_MAX_CANDIDATES: Final = 1_000
"""Maximum number of entries examined, for topics with very many entries."""
_MAX_NEIGHBOURS: Final = 50

# Each name is expanded to all names of its entity, at both ends of a triple.
_HOP: Final = """
WITH seeds (name) AS ({seeds}),
  here (name) AS (
    SELECT name FROM seeds
    UNION SELECT others.name_key FROM seeds JOIN names ON names.name_key = seeds.name
      JOIN names AS others ON others.entity_id = names.entity_id),
  onwards (name) AS (
    SELECT object_key FROM here JOIN triples ON triples.subject_key = here.name WHERE {triple} LIMIT :triples),
  backwards (name) AS (
    SELECT subject_key FROM here JOIN triples ON triples.object_key = here.name WHERE {triple} LIMIT :triples),
  ends (name) AS (SELECT name FROM onwards UNION SELECT name FROM backwards),
  there (name) AS (
    SELECT name FROM ends
    UNION SELECT others.name_key FROM ends JOIN names ON names.name_key = ends.name
      JOIN names AS others ON others.entity_id = names.entity_id)
SELECT number FROM (
  SELECT entries.number FROM entries WHERE entries.topic_key IN (SELECT name FROM there) AND {entry} LIMIT :looked_at
) AS near ORDER BY number DESC LIMIT :neighbours
"""


async def find_neighbours(unit: UnitOfWork, hits: Iterable[Hit], arguments: Json, condition: Condition) -> set[int]:
    """Return the numbers of entries whose topic is linked by a triple to the topic of one of the best hits."""
    topics = list(dict.fromkeys(hit.topic_key for hit in hits))[:_MAX_SEEDS]
    if not topics:
        return set()
    triple = active_at(unit, "triples", arguments)
    sql = _HOP.format(seeds=unit.index.json_strings(":topics"), triple=triple.sql, entry=condition.sql)
    bounds = {"triples": _MAX_TRIPLES, "looked_at": _MAX_CANDIDATES, "neighbours": _MAX_NEIGHBOURS}
    values: Json = {"topics": json.dumps(topics), **bounds, **triple.values, **condition.values}
    found = await unit.connection.execute(statement(sql), values)
    return set(found.scalars())
