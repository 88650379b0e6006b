"""A gateway with the godot backend, and a project in a tenant's own folder; a real engine where one is installed."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.engines import godot as installer
from tests.missing import missing

Json = dict[str, Any]
MODERN = "2026-07-28"

PROJECT = 'config_version=5\n\n[application]\n\nconfig/name="Meadow"\n'
SCENE = """[gd_scene format=3]

[node name="Main" type="Node2D" unique_id=1404853070]

[node name="Player" type="Sprite2D" parent="." unique_id=1335629582 groups=["heroes"]]
position = Vector2(1, 2)
metadata/keep = [1, &"name", Array[int]([1, 2]), {
"a": NodePath("b")
}]

; a comment of the author's
[node name="Sword" type="Node2D" parent="Player" unique_id=99]

[connection signal="visibility_changed" from="Player" to="." method="queue_redraw"]
"""


@pytest.fixture(scope="session")
def engine() -> Path:
    """A real Godot 4."""
    found = installer.installed()
    if found is None:
        reason = "no Godot here: `python -m tests.engines.godot` fetches one"
        missing(reason)
    return found


@dataclass(frozen=True)
class Studio:
    """A gateway with the backend, seen by one caller, and that caller's project."""

    gateway: Any
    files: Path
    http: httpx.AsyncClient
    tenant: str = "default"

    @property
    def root(self) -> Path:
        return self.files / self.tenant / "godot" / "projects"

    @property
    def project(self) -> Path:
        return self.root / "meadow"

    def make_project(self, name: str = "meadow") -> Path:
        folder = self.root / name
        folder.mkdir(parents=True)
        (folder / "project.godot").write_text(PROJECT)
        (folder / "main.tscn").write_text(SCENE)
        return folder

    async def call(self, tool: str, /, **arguments: Any) -> Json:
        """The envelope of a call; `projectPath` is the project's unless given (None: none)."""
        arguments.setdefault("projectPath", str(self.project))
        if arguments["projectPath"] is None:
            del arguments["projectPath"]
        answer = await self._post(f"godot.{tool.removeprefix('godot_')}", arguments)
        assert "result" in answer, answer
        envelope = answer["result"]["structuredContent"]
        assert answer["result"]["isError"] is not envelope["ok"]
        return envelope

    async def _post(self, name: str, arguments: Json) -> Json:
        """As the gateway's own `call`, over one connection: a test makes many."""
        meta = {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        headers = {
            "authorization": f"Bearer {self.gateway.key}",
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": MODERN,
            "mcp-method": "tools/call",
            "mcp-name": name,
        }
        params = {"name": name, "arguments": arguments, "_meta": meta}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        answer = await self.http.post(self.gateway.url, json=body, headers=headers)
        if not answer.headers["content-type"].startswith("text/event-stream"):
            return answer.json()
        # A call that takes long is answered as a stream; its last event is the answer.
        events = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: ")]
        return json.loads(events[-1])

    async def good(self, tool: str, /, **arguments: Any) -> Json:
        """What a call that must succeed answers as its result."""
        envelope = await self.call(tool, **arguments)
        assert envelope["ok"], envelope["error"]
        return envelope["result"]

    async def code(self, tool: str, /, **arguments: Any) -> str:
        """The code of a call that must fail."""
        envelope = await self.call(tool, **arguments)
        assert not envelope["ok"], envelope
        return envelope["error"]["code"]

    async def of(self, tenant: str) -> "Studio":
        key = await self.gateway.new_key(tenant=tenant, subject="carol")
        return replace(self, gateway=self.gateway.as_(key), tenant=tenant)


Open = Callable[..., AbstractAsyncContextManager[Studio]]


@pytest.fixture
def studio_with(start: Any, tmp_path: Path) -> Open:
    """`async with studio_with(godot_path=…) as studio:`; other settings as `settings={…}`."""

    @asynccontextmanager
    async def opening(settings: Json | None = None, **options: Any) -> AsyncIterator[Studio]:
        given = {"godot_path": "", **options}
        backends = {"godot": {"module": "backends.godot", "options": given}}
        given_settings = {"limits": {"calls": "100000/minute"}, **(settings or {})}
        http = httpx.AsyncClient(timeout=120, verify=False)
        async with start(backends=backends, **given_settings) as gateway, http:
            studio = Studio(gateway, gateway.house.settings.files_dir, http)
            studio.make_project()
            yield studio

    return opening


@pytest.fixture
async def studio(studio_with: Open) -> AsyncIterator[Studio]:
    """Without an engine: what files alone can do."""
    async with studio_with() as running:
        yield running


@pytest.fixture
async def real(studio_with: Open, engine: Path) -> AsyncIterator[Studio]:
    """With a real engine."""
    async with studio_with(godot_path=str(engine)) as running:
        yield running
