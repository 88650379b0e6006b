"""One hop through the graph: entries about what a triple connects with what was found."""

import json
from collections.abc import Iterable
from typing import Final

from backends.knowledge.search.filters import alive_at
from backends.knowledge.search.index import Hit
from backends.knowledge.sql import Condition, statement
from backends.knowledge.unit_of_work import Book
from gateway.contract import Json

_SEEDS: Final = 10
_TRIPLES: Final = 100
_LOOKED_AT: Final = 1_000
"""Of a topic with very many entries not all are looked at."""
_NEIGHBOURS: Final = 50

# Every name of an entity stands for all of its names, at both ends of a triple.
_HOP: Final = """
WITH seeds (name) AS ({given}),
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


async def neighbours(book: Book, hits: Iterable[Hit], arguments: Json, condition: Condition) -> set[int]:
    """Numbers of entries whose topic is the other end of a triple that touches the topic of one of the best hits."""
    topics = list(dict.fromkeys(hit.topic_key for hit in hits))[:_SEEDS]
    if not topics:
        return set()
    triple = alive_at(book, "triples", arguments)
    sql = _HOP.format(given=book.index.listed(":topics"), triple=triple.sql, entry=condition.sql)
    bounds = {"triples": _TRIPLES, "looked_at": _LOOKED_AT, "neighbours": _NEIGHBOURS}
    values: Json = {"topics": json.dumps(topics), **bounds, **triple.values, **condition.values}
    found = await book.connection.execute(statement(sql), values)
    return set(found.scalars())
