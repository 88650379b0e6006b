"""Exports of godot as tasks, by a raw client of 2026-07-28 and by the Python SDK's task client of 2025-11-25."""

from pathlib import Path
from typing import Any

from tests.backends.godot.test_every_tool import PRESETS
from tests.flows.task_client import call_modern, wait_modern
from tests.peers.task_peers import run_client


async def test_export_is_a_task_in_both_eras(open_harness: Any, engine: Path) -> None:
    async with open_harness({"tasks": {"after": 0.01}}, godot_path=str(engine)) as harness:
        (harness.project / "export_presets.cfg").write_text(PRESETS)
        arguments = {"projectPath": str(harness.project), "preset": "Linux", "outputPath": "out/modern.pck"}
        created = (await call_modern(harness.gateway, "godot_export_pack", arguments))["result"]
        assert created["resultType"] == "task"
        task = await wait_modern(harness.gateway, created["taskId"], seconds=120)
        assert task["result"]["structuredContent"]["ok"] is True, task
        assert (harness.project / "out" / "modern.pck").exists()
        names = {"long": ["godot_export_pack", {**arguments, "outputPath": "out/handshake.pck"}]}
        seen = await run_client("python", harness.gateway.url, harness.gateway.key, names)
        assert seen["result"]["structuredContent"]["ok"] is True, seen
        assert (harness.project / "out" / "handshake.pck").exists()
