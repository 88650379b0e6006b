"""Runs the same tests against a gateway on PostgreSQL."""

from collections.abc import AsyncIterator, Iterator

import pytest

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
