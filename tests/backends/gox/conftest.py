"""A gateway with the Gox backends and one of them that does as a test says."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tests.backends.gox import sandbox

BACKENDS = {
    "core": {"module": "backends.core"},
    "project": {"module": "backends.core:project"},
    "workflow": {"module": "backends.workflow"},
    "sandbox": {"module": "tests.backends.gox.sandbox"},
}


@pytest.fixture(autouse=True)
def clean_sandbox() -> None:
    sandbox.forget()


@pytest.fixture
def serving(start: Any) -> Callable[[], Any]:
    return lambda: start(backends=BACKENDS, tenants={"default": {}, "other": {}})


@pytest.fixture
async def gateway(serving: Callable[[], Any]) -> AsyncIterator[Any]:
    async with serving() as running:
        yield running
