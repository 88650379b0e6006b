"""Fixtures: a gateway with the godot backend, a project in a tenant's folder, and a real engine if installed."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.engines import godot as installer
from tests.prerequisites import skip_or_fail

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
    """Path of a real Godot 4; the test is skipped without one."""
    found = installer.installed()
    if found is None:
        reason = "Godot is not installed: run `python -m tests.engines.godot`"
        skip_or_fail(reason)
    return found


@dataclass(frozen=True)
class GodotHarness:
    """A gateway with the backend, used by one caller with one project."""

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
        """Return the envelope of a call. `projectPath` defaults to the project; None omits it."""
        arguments.setdefault("projectPath", str(self.project))
        if arguments["projectPath"] is None:
            del arguments["projectPath"]
        answer = await self._post(f"godot.{tool.removeprefix('godot_')}", arguments)
        assert "result" in answer, answer
        envelope = answer["result"]["structuredContent"]
        assert answer["result"]["isError"] is not envelope["ok"]
        return envelope

    async def _post(self, name: str, arguments: Json) -> Json:
        """Like the gateway's own `call`, but reuses one connection because a test makes many calls."""
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
        # A long call is answered with an event stream; its last event is the response.
        events = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: ")]
        return json.loads(events[-1])

    async def call_ok(self, tool: str, /, **arguments: Any) -> Json:
        """Return the result of a call that must succeed."""
        envelope = await self.call(tool, **arguments)
        assert envelope["ok"], envelope["error"]
        return envelope["result"]

    async def error_code(self, tool: str, /, **arguments: Any) -> str:
        """Return the error code of a call that must fail."""
        envelope = await self.call(tool, **arguments)
        assert not envelope["ok"], envelope
        return envelope["error"]["code"]

    async def for_tenant(self, tenant: str) -> "GodotHarness":
        key = await self.gateway.new_key(tenant=tenant, subject="carol")
        return replace(self, gateway=self.gateway.as_(key), tenant=tenant)


OpenHarness = Callable[..., AbstractAsyncContextManager[GodotHarness]]


@pytest.fixture
def open_harness(start: Any, tmp_path: Path) -> OpenHarness:
    """`async with open_harness(godot_path=…) as harness:`; `settings={…}` sets gateway settings."""

    @asynccontextmanager
    async def open_with(settings: Json | None = None, **options: Any) -> AsyncIterator[GodotHarness]:
        backend_options = {"godot_path": "", **options}
        backends = {"godot": {"module": "backends.godot", "options": backend_options}}
        gateway_settings = {"limits": {"calls": "100000/minute"}, **(settings or {})}
        http = httpx.AsyncClient(timeout=120, verify=False)
        async with start(backends=backends, **gateway_settings) as gateway, http:
            harness = GodotHarness(gateway, gateway.app.settings.files_dir, http)
            harness.make_project()
            yield harness

    return open_with


@pytest.fixture
async def harness(open_harness: OpenHarness) -> AsyncIterator[GodotHarness]:
    """A harness without an engine: tools only edit files."""
    async with open_harness() as harness:
        yield harness


@pytest.fixture
async def engine_harness(open_harness: OpenHarness, engine: Path) -> AsyncIterator[GodotHarness]:
    """A harness with a real engine."""
    async with open_harness(godot_path=str(engine)) as harness:
        yield harness
