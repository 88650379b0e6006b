"""Figures of one tenant's memory, for `knowledge://stats`."""

from typing import Final

from backends.knowledge.sql import statement
from backends.knowledge.unit_of_work import UnitOfWork
from gateway.contract import Json

_COUNTS: Final = """
SELECT
  (SELECT count(*) FROM entries WHERE deleted_at IS NULL) AS entries,
  (SELECT count(*) FROM triples WHERE deleted_at IS NULL) AS triples,
  (SELECT count(*) FROM triples WHERE deleted_at IS NULL AND inferred = 1) AS inferred_triples,
  (SELECT count(*) FROM entities WHERE deleted_at IS NULL) AS entities,
  (SELECT count(*) FROM transactions) AS transactions,
  (SELECT count(DISTINCT tag) FROM entry_tags) AS tags,
  (SELECT count(*) FROM conflicts WHERE resolution IS NULL AND expires_at >= :now) AS open_conflicts,
  (SELECT count(*) FROM ingestions WHERE status IN ('pending', 'processing')) AS running_ingestions,
  (SELECT count(*) FROM entry_vectors) AS vectors,
  (SELECT count(*) FROM pending_vectors) AS pending_vectors,
  (SELECT stored_bytes FROM clock) AS stored_bytes,
  (SELECT min(recorded_at) FROM transactions) AS first_change_at,
  (SELECT max(recorded_at) FROM transactions) AS last_change_at
"""


async def read(unit: UnitOfWork) -> Json:
    found = await unit.connection.execute(statement(_COUNTS), {"now": unit.now})
    figures: Json = dict(found.mappings().one())
    figures["stored_bytes"] = figures["stored_bytes"] or 0
    search = "words, graph and meaning" if unit.semantic is not None else "words and graph"
    return {**figures, "max_bytes": unit.max_bytes, "search": search, "languages": list(unit.languages)}
