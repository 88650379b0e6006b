"""Vectors in PostgreSQL with the extension pgvector: the server compares them, and none leaves it.

The migration adds the column `embedding` if the extension is installed or this role may install it. Row-level security
limits each scan to the tenant's rows; an approximate index would cross tenants, so the scan is exact.
"""

from array import array
from typing import Any, Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from backends.knowledge.sql import statement

_SCHEMA: Final = text(
    "SELECT nspname FROM pg_attribute JOIN pg_type ON pg_type.oid = atttypid JOIN pg_namespace"
    " ON pg_namespace.oid = typnamespace WHERE attrelid = to_regclass('entry_vectors') AND attname = 'embedding'"
)
_MISSING: Final = "SELECT number, vector FROM entry_vectors WHERE embedding IS NULL LIMIT 1000"
_ADD: Final = (
    "UPDATE entry_vectors SET embedding = CAST(CAST(:embedding AS TEXT) AS {schema}.vector) WHERE number = :number"
)
_NEAREST: Final = """
SELECT number, 1 - (embedding OPERATOR({schema}.<=>) CAST(CAST(:sought AS TEXT) AS {schema}.vector)) AS similarity
FROM entry_vectors WHERE model = :model AND embedding IS NOT NULL
ORDER BY embedding OPERATOR({schema}.<=>) CAST(CAST(:sought AS TEXT) AS {schema}.vector), number LIMIT :count
"""
_schemas: Final[dict[Any, str | None]] = {}
"""Quoted schema of the type `vector` by database address, or None without the extension; read once per process."""


async def is_available(connection: AsyncConnection) -> bool:
    return await _schema(connection) is not None


async def add_embeddings(connection: AsyncConnection) -> None:
    """Fill the column of the server's own type from the vectors written in this transaction."""
    if (schema := await _schema(connection)) is None:
        return
    rows = (await connection.execute(statement(_MISSING))).all()
    if rows:
        values = [{"number": number, "embedding": _literal(vector)} for number, vector in rows]
        await connection.execute(statement(_ADD.format(schema=schema)), values)


async def nearest(
    connection: AsyncConnection, model: str, code: bytes, count: int, min_similarity: float
) -> list[tuple[int, float]]:
    """Return up to `count` entry numbers with a cosine of at least `min_similarity`, the most similar first."""
    schema = await _schema(connection)
    assert schema is not None
    values = {"sought": _literal(code), "model": model, "count": count}
    rows = await connection.execute(statement(_NEAREST.format(schema=schema)), values)
    return [(number, round(min(similarity, 1.0), 6)) for number, similarity in rows if similarity >= min_similarity]


def _literal(code: bytes) -> str:
    """Return the text form of a vector; the length of a vector does not change its cosines."""
    return str(array("b", code).tolist())


async def _schema(connection: AsyncConnection) -> str | None:
    if connection.dialect.name != "postgresql":
        return None
    key = connection.engine.url
    if key not in _schemas:
        found = (await connection.execute(_SCHEMA)).scalar()
        _schemas[key] = None if found is None else '"' + found.replace('"', '""') + '"'
    return _schemas[key]
