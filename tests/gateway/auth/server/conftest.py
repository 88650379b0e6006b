"""A gateway with the embedded authorization server on SQLite, or PostgreSQL with `GATEHOUSE_TEST_DATABASE=postgres`."""

import os
from collections.abc import AsyncIterator
from typing import Any

import pytest

FREE = {"registration_rate": "1000/minute", "authorize_rate": "10000/minute", "token_rate": "10000/minute"}


@pytest.fixture
def identity_database(request: pytest.FixtureRequest) -> dict[str, str]:
    engine = getattr(request, "param", os.environ.get("GATEHOUSE_TEST_DATABASE"))
    return {"url": request.getfixturevalue("postgres_url")} if engine == "postgres" else {}


@pytest.fixture
async def server(start: Any, identity_database: dict[str, str]) -> AsyncIterator[Any]:
    async with start(auth=FREE, database=identity_database) as gateway:
        yield gateway
