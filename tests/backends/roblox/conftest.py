"""A gateway with the bridge open, a Studio in Python, and the real plugin in a real Luau VM."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from backends.roblox.headless_studio import NoStudio, headless, install
from tests.backends.roblox.harness import Desk
from tests.conftest import run_gateway
from tests.missing import missing


async def _modules() -> Path:
    try:
        return await install()
    except NoStudio as exc:
        missing(str(exc))


@asynccontextmanager
async def _open_desk(folder: Path, **options: Any) -> AsyncIterator[Desk]:
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
        yield await stack.enter_async_context(Desk(gateway, stack, _modules, headless))


@pytest.fixture
async def modules() -> Path:
    """Where Node finds the VM."""
    return await _modules()


@pytest.fixture
def opening(tmp_path: Path) -> Callable[..., Any]:
    """`async with opening(request_timeout=1) as desk`: the options are the roblox backend's."""
    return lambda **options: _open_desk(tmp_path, **options)


@pytest.fixture
async def desk(opening: Callable[..., Any]) -> AsyncIterator[Desk]:
    async with opening() as opened:
        yield opened


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_studio(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Desk]:
    """One Studio with the real plugin for a whole file: starting one takes seconds."""
    async with asyncio.timeout(600), _open_desk(tmp_path_factory.mktemp("studio")) as desk:
        await desk.luau()
        yield desk


@pytest_asyncio.fixture(loop_scope="module")
async def studio(shared_studio: Desk) -> Desk:
    """That Studio, with nothing in it."""
    await shared_studio.clear()
    return shared_studio
