"""One issuer for each test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.gateway.auth.house import House, house


@pytest.fixture
async def issuer(tmp_path: Path) -> AsyncIterator[House]:
    async with house(tmp_path) as made:
        yield made
