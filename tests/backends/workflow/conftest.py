"""A gateway with workflows over three backends."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tests.backends.workflow import sandbox

BACKENDS = {
    "core": {"module": "backends.core"},
    "project": {"module": "backends.core:project"},
    "workflow": {"module": "backends.workflow"},
    "sandbox": {"module": "tests.backends.workflow.sandbox"},
}


@pytest.fixture(autouse=True)
def clean_sandbox() -> None:
    sandbox.reset()


@pytest.fixture
def serving(start: Any) -> Callable[..., Any]:
    """Start a gateway: `async with serving(max_steps=2) as gateway`. Keywords are options of the workflow backend."""

    def start_with(**options: Any) -> Any:
        workflow = {"module": "backends.workflow", "options": options}
        return start(backends={**BACKENDS, "workflow": workflow}, tenants={"default": {}, "other": {}})

    return start_with


@pytest.fixture
async def gateway(serving: Callable[..., Any]) -> AsyncIterator[Any]:
    async with serving() as running:
        yield running
