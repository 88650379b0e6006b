"""The semantic index of all tenants: loads the embedder on first use, keeps vectors up to date, and searches them.

The model and numpy run in one thread of their own. Vectors are derived data: changes only mark entries as pending, and
the next search of the tenant computes what is missing before it searches.
"""

import asyncio
import importlib
import json
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

from sqlalchemy import Integer, bindparam, delete, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from backends.knowledge.options import Options
from backends.knowledge.search.engines import index_for
from backends.knowledge.search.index import Hit
from backends.knowledge.semantic import pgvector
from backends.knowledge.sql import Condition, statement
from backends.knowledge.tables import entries, entry_vectors, pending_vectors
from backends.knowledge.unit_of_work import UnitOfWork
from gateway.contract.embedder_packages import choose_model

_BATCH: Final = 32
_READ_ROWS: Final = 4_096
SEARCH_BUDGET: Final = 0.5
"""Seconds that a search spends on missing vectors; a background task computes the others."""
_PENDING: Final = select(pending_vectors.c.entry_id).limit(bindparam("most", type_=Integer))
_TEXTS: Final = select(
    entries.c.id, entries.c.number, entries.c.version, entries.c.topic, entries.c.content, entries.c.tags
).where(entries.c.id.in_(bindparam("ids", expanding=True)), entries.c.deleted_at.is_(None))
_VERSIONS: Final = select(entries.c.id, entries.c.version).where(entries.c.id.in_(bindparam("ids", expanding=True)))
_REMOVE_PENDING: Final = delete(pending_vectors).where(pending_vectors.c.entry_id.in_(bindparam("ids", expanding=True)))
_REMOVE_VECTORS: Final = delete(entry_vectors).where(entry_vectors.c.number.in_(bindparam("numbers", expanding=True)))
_INSERT_VECTORS: Final = insert(entry_vectors)
_NEW_VECTORS: Final = (
    select(entry_vectors.c.sequence, entry_vectors.c.number, entry_vectors.c.vector)
    .where(entry_vectors.c.sequence > bindparam("after", type_=Integer), entry_vectors.c.model == bindparam("model"))
    .order_by(entry_vectors.c.sequence)
    .limit(_READ_ROWS)
)
# Entries from before the index existed, or with a vector of another model.
_QUEUE_MISSING: Final = """
INSERT INTO pending_vectors (entry_id)
SELECT entries.id FROM entries
WHERE entries.deleted_at IS NULL
  AND NOT EXISTS (SELECT 1 FROM entry_vectors AS known WHERE known.number = entries.number AND known.model = :model)
  AND NOT EXISTS (SELECT 1 FROM pending_vectors AS queued WHERE queued.entry_id = entries.id)
"""
_FILTER: Final = (
    "SELECT entries.number, entries.topic_key FROM entries WHERE entries.number IN ({numbers}) AND {condition}"
)

OpenUnit = Callable[[], AbstractAsyncContextManager[UnitOfWork]]


def text_of(topic: str, content: str, tags: list[str]) -> str:
    """Return the text of an entry that its vector stands for."""
    return "\n".join(part for part in (topic, content, " ".join(tags)) if part)


class SemanticService:
    """Semantic search over entries. Search results contain exactly what the tables contain at that time."""

    def __init__(self, model: str, cache_bytes: int) -> None:
        self._model = model
        self._cache_bytes = cache_bytes
        self._thread = ThreadPoolExecutor(1, "knowledge-embedder")
        self._embedder: Any = None
        self._modules: Any = None
        self._load_lock = asyncio.Lock()
        self._tables: OrderedDict[str, Any] = OrderedDict()
        """Vector tables by tenant, the least recently used first."""
        self._queued: set[str] = set()
        """Tenants whose entries without a vector have been queued by this process."""

    @classmethod
    def create(cls, options: Options) -> "SemanticService | None":
        """Return the service, or None if it is disabled or its package is not installed."""
        if options.meaning is not None or options.semantic is False:
            return None
        model = choose_model(options.semantic)
        if model is None:
            if options.semantic:
                raise ValueError("the option `semantic` needs the extra `semantic` or `semantic-light` to be installed")
            return None
        return cls(model, options.vector_cache_bytes)

    @property
    def is_loaded(self) -> bool:
        return self._embedder is not None

    def close(self) -> None:
        """End the thread; a batch in progress is finished first."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def embed(self, texts: list[str]) -> Any:
        """Return one unit vector per text, computed off the event loop."""
        await self._load()
        return await self._in_thread(self._embedder.embed, texts)

    async def _load(self) -> None:
        async with self._load_lock:
            if self._embedder is None:
                self._modules, self._embedder = await self._in_thread(_import_and_load, self._model)

    async def _in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    # ---- keeping vectors up to date ----

    async def catch_up(self, tenant: str, open_unit: OpenUnit, budget: float = SEARCH_BUDGET) -> bool:
        """Compute the vectors of pending entries, in short transactions, for about `budget` seconds.

        Returns whether any are left.
        """
        await self._load()
        if tenant not in self._queued:
            self._queued.add(tenant)
            async with open_unit() as unit:
                await unit.connection.execute(statement(_QUEUE_MISSING), {"model": self._embedder.name})
        deadline = time.monotonic() + budget
        while time.monotonic() < deadline:
            async with open_unit() as unit:
                ids = list((await unit.connection.execute(_PENDING, {"most": _BATCH})).scalars())
                rows = list(await unit.connection.execute(_TEXTS, {"ids": ids})) if ids else []
            if not ids:
                return False
            texts = [text_of(row.topic, row.content, json.loads(row.tags)) for row in rows]
            codes: list[bytes] = []
            if texts:
                codes = await self._in_thread(self._modules.quantize, await self.embed(texts))
            async with open_unit() as unit:
                await self._write(unit, ids, rows, codes)
                await pgvector.add_embeddings(unit.connection)
        return True

    async def _write(self, unit: UnitOfWork, ids: list[str], rows: list[Any], codes: list[bytes]) -> None:
        await unit.begin_writing()
        # An entry changed since its text was read stays pending.
        current = {row.id: row.version for row in await unit.connection.execute(_VERSIONS, {"ids": ids})}
        fresh = [at for at, row in enumerate(rows) if current.get(row.id) == row.version]
        changed = {row.id for row in rows} - {rows[at].id for at in fresh}
        await unit.connection.execute(_REMOVE_PENDING, {"ids": [id_ for id_ in ids if id_ not in changed]})
        if not fresh:
            return
        await unit.connection.execute(_REMOVE_VECTORS, {"numbers": [rows[at].number for at in fresh]})
        written = [
            {
                "number": rows[at].number,
                "model": self._embedder.name,
                "sequence": unit.new_number(),
                "vector": codes[at],
            }
            for at in fresh
        ]
        await unit.connection.execute(_INSERT_VECTORS, written)

    # ---- searching ----

    def for_tenant(self, tenant: str) -> "TenantSearch":
        return TenantSearch(self, tenant)

    async def search(
        self,
        connection: AsyncConnection,
        tenant: str,
        text: str,
        condition: Condition,
        limit: int,
    ) -> list[Hit]:
        """Return up to `limit` entries that match the condition and resemble the text, the most similar first."""
        sought, min_similarity = (await self.embed([text]))[0], self._embedder.min_similarity
        count = 2 * limit
        while True:
            near = await self._nearest(connection, tenant, sought, count, min_similarity)
            hits = await _matching(connection, near, condition)
            if len(hits) >= limit or len(near) < count:
                return hits[:limit]
            # The condition excluded many: look further.
            count *= 8

    async def _nearest(
        self, connection: AsyncConnection, tenant: str, sought: Any, count: int, min_similarity: float
    ) -> list[tuple[int, float]]:
        """Compare with all vectors of the tenant: in the server if it can, else in memory or batch by batch."""
        if await pgvector.is_available(connection):
            codes: list[bytes] = await self._in_thread(self._modules.quantize, sought[None, :])
            return await pgvector.nearest(connection, self._embedder.name, codes[0], count, min_similarity)
        table = self._tables.get(tenant)
        if table is None:
            table = self._modules.VectorTable()
        values = {"after": table.sequence, "model": self._embedder.name}
        found_before: list[tuple[int, float]] = []
        while found := [tuple(row) for row in await connection.execute(_NEW_VECTORS, values)]:
            await self._in_thread(table.put, found)
            values["after"] = found[-1][0]
            if table.size > self._cache_bytes:
                self._tables.pop(tenant, None)
                found_before += await self._in_thread(table.nearest, sought, count, min_similarity)
                found_before = sorted(found_before, key=_best_first)[:count]
                table = self._modules.VectorTable()
            if len(found) < _READ_ROWS:
                break
        nearest = await self._in_thread(table.nearest, sought, count, min_similarity)
        if not found_before:
            self._keep(tenant, table)
            return nearest
        return sorted([*found_before, *nearest], key=_best_first)[:count]

    def _keep(self, tenant: str, table: Any) -> None:
        self._tables[tenant] = table
        self._tables.move_to_end(tenant)
        while len(self._tables) > 1 and sum(each.size for each in self._tables.values()) > self._cache_bytes:
            self._tables.popitem(last=False)


class TenantSearch:
    """`SemanticSearch` of one tenant."""

    def __init__(self, service: SemanticService, tenant: str) -> None:
        self._service = service
        self._tenant = tenant

    async def similar(self, connection: AsyncConnection, text: str, condition: Condition, limit: int) -> list[Hit]:
        return await self._service.search(connection, self._tenant, text, condition, limit)


def _best_first(near: tuple[int, float]) -> tuple[float, int]:
    return -near[1], near[0]


class _Modules:
    """The functions and classes of the modules that load on first use."""

    def __init__(self) -> None:
        self.VectorTable: Any = importlib.import_module("backends.knowledge.semantic.vectors").VectorTable
        self.quantize: Any = importlib.import_module("gateway.contract.embedder").quantize


def _import_and_load(model: str) -> tuple[_Modules, Any]:
    modules = _Modules()
    return modules, importlib.import_module("gateway.contract.embedder").load(model)


async def _matching(connection: AsyncConnection, near: list[tuple[int, float]], condition: Condition) -> list[Hit]:
    if not near:
        return []
    numbers = index_for(connection.dialect.name).json_integers(":numbers")
    sql = _FILTER.format(numbers=numbers, condition=condition.sql)
    values = {"numbers": json.dumps([number for number, _ in near]), **condition.values}
    topics = {row.number: row.topic_key for row in await connection.execute(statement(sql), values)}
    return [Hit(number, topics[number], score) for number, score in near if number in topics]
