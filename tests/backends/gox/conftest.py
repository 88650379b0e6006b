"""A gateway with the Gox backends and a sandbox backend that tests control."""

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
    sandbox.reset()


@pytest.fixture
def serving(start: Any) -> Callable[[], Any]:
    return lambda: start(backends=BACKENDS, tenants={"default": {}, "other": {}})


@pytest.fixture
async def gateway(serving: Callable[[], Any]) -> AsyncIterator[Any]:
    async with serving() as running:
        yield running
