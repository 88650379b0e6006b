"""What holds of a memory in SQLite holds of one in PostgreSQL: the same tests, through a gateway on that database."""

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.backends.knowledge.conftest import Memory, Served, remembering
from tests.backends.knowledge.test_entries import *  # noqa: F403
from tests.backends.knowledge.test_graph import *  # noqa: F403
from tests.backends.knowledge.test_reference_model import (  # noqa: F401
    agrees,
    test_of_many_who_state_contradicting_facts_one_is_written,
    test_of_two_writers_of_one_version_only_one_wins,
    test_sixteen_writers_lose_nothing,
)
from tests.backends.knowledge.test_search import *  # noqa: F403
from tests.backends.knowledge.test_tenants import *  # noqa: F403
from tests.backends.knowledge.test_undo import *  # noqa: F403


@pytest.fixture(scope="session")
def served_by_postgres(tmp_path_factory: pytest.TempPathFactory, postgres: str) -> Iterator[Served]:
    served = Served(tmp_path_factory.mktemp("knowledge"), database={"url": postgres})
    yield served
    served.close()


@pytest.fixture
async def memory(served_by_postgres: Served) -> AsyncIterator[Memory]:
    async with remembering(served_by_postgres) as memory:
        yield memory


async def test_the_memory_agrees_with_a_simple_model(memory: Memory) -> None:
    await agrees(memory, 4)
