"""A gateway that issues tokens, on SQLite; `GATEHOUSE_TEST_DATABASE=postgres` runs the same tests on PostgreSQL."""

import os
from collections.abc import AsyncIterator
from typing import Any

import pytest

FREE = {"registration_rate": "1000/minute", "authorize_rate": "10000/minute", "token_rate": "10000/minute"}


@pytest.fixture
async def server(start: Any, request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    engine = getattr(request, "param", os.environ.get("GATEHOUSE_TEST_DATABASE"))
    database = {"url": request.getfixturevalue("postgres_url")} if engine == "postgres" else {}
    async with start(auth=FREE, database=database) as gateway:
        yield gateway
