"""Fixtures: a gateway with the bridge enabled, fake Studios, and the real plugin in a Luau VM."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from backends.roblox.headless_studio import StudioUnavailable, install, run_headless_studio
from tests.backends.roblox.harness import RobloxHarness
from tests.conftest import run_gateway
from tests.prerequisites import skip_or_fail


async def _modules() -> Path:
    try:
        return await install()
    except StudioUnavailable as exc:
        skip_or_fail(str(exc))


@asynccontextmanager
async def _open_harness(folder: Path, **options: Any) -> AsyncIterator[RobloxHarness]:
    backends = {
        "core": {"module": "backends.core"},
        "project": {"module": "backends.core:project"},
        "workflow": {"module": "backends.workflow"},
        "sandbox": {"module": "tests.backends.gox.sandbox"},
        "roblox": {"module": "backends.roblox", "options": {"bridge_enabled": True, **options}},
    }
    tenants: dict[str, Any] = {"default": {}, "other": {}}
    limits = {"calls": "100000/minute"}
    async with AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(
            run_gateway(folder, backends=backends, tenants=tenants, limits=limits)
        )
        yield await stack.enter_async_context(RobloxHarness(gateway, stack, _modules, run_headless_studio))


@pytest.fixture
async def modules() -> Path:
    """The folder from which Node loads the VM."""
    return await _modules()


@pytest.fixture
def open_harness(tmp_path: Path) -> Callable[..., Any]:
    """`async with open_harness(request_timeout=1) as harness`: keywords are options of the roblox backend."""
    return lambda **options: _open_harness(tmp_path, **options)


@pytest.fixture
async def harness(open_harness: Callable[..., Any]) -> AsyncIterator[RobloxHarness]:
    async with open_harness() as opened:
        yield opened


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_studio(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RobloxHarness]:
    """One Studio with the real plugin for a whole test file, because starting one takes seconds."""
    async with asyncio.timeout(600), _open_harness(tmp_path_factory.mktemp("studio")) as harness:
        await harness.start_plugin()
        yield harness


@pytest_asyncio.fixture(loop_scope="module")
async def studio(shared_studio: RobloxHarness) -> RobloxHarness:
    """The shared Studio, emptied."""
    await shared_studio.clear()
    return shared_studio
