"""Runs the same tests against a gateway on PostgreSQL."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import asyncpg
import pytest

from backends.knowledge.semantic import pgvector
from tests.backends.knowledge.conftest import GatewayThread, MemoryClient, new_tenant_client
from tests.backends.knowledge.test_entries import *  # noqa: F403
from tests.backends.knowledge.test_graph import *  # noqa: F403
from tests.backends.knowledge.test_reference_model import (  # noqa: F401
    check_against_model,
    test_only_one_concurrent_update_of_the_same_version_succeeds,
    test_only_one_of_concurrent_contradicting_facts_is_written,
    test_sixteen_concurrent_writers_lose_no_changes,
)
from tests.backends.knowledge.test_search import *  # noqa: F403
from tests.backends.knowledge.test_semantic_search import NOTES, SIGN_IN, call, first_hit
from tests.backends.knowledge.test_tenants import *  # noqa: F403
from tests.backends.knowledge.test_undo import *  # noqa: F403


@pytest.fixture(scope="session")
def postgres_gateway_thread(tmp_path_factory: pytest.TempPathFactory, postgres: str) -> Iterator[GatewayThread]:
    gateway_thread = GatewayThread(tmp_path_factory.mktemp("knowledge"), database={"url": postgres})
    yield gateway_thread
    gateway_thread.close()


@pytest.fixture
async def memory(postgres_gateway_thread: GatewayThread) -> AsyncIterator[MemoryClient]:
    async with new_tenant_client(postgres_gateway_thread) as memory:
        yield memory


async def test_random_operations_match_the_reference_model(memory: MemoryClient) -> None:
    await check_against_model(memory, 4)


async def test_server_with_pgvector_compares_the_vectors_itself(start: Any, postgres_url: str) -> None:
    operator = await asyncpg.connect(postgres_url)
    await operator.execute("CREATE EXTENSION vector")
    await operator.close()
    knowledge = {"module": "backends.knowledge", "options": {"semantic": "wordllama"}}
    async with start(backends={"knowledge": knowledge}, database={"url": postgres_url}) as gateway:
        for n, note in enumerate(NOTES):
            await call(gateway, "store", topic=f"pgvector note {n}", content=note, tags=["pgvector"])
        assert await first_hit(gateway, "login credentials", tags=["pgvector"]) == SIGN_IN
        async with gateway.app.stores.store("default", "knowledge", None).transaction() as connection:
            assert await pgvector.is_available(connection)
            counts = await connection.exec_driver_sql("SELECT count(*), count(embedding) FROM entry_vectors")
            written, embedded = counts.one()
    assert written == embedded >= len(NOTES)
