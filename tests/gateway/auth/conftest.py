"""Fixtures for token tests."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.gateway.auth.token_issuer import IssuerFixture, open_issuer


@pytest.fixture
async def issuer(tmp_path: Path) -> AsyncIterator[IssuerFixture]:
    async with open_issuer(tmp_path) as opened:
        yield opened
