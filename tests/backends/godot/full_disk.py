"""Program for test_engine.py: a gateway whose projects are on a full disk, run in its own mount namespace.

`python -m tests.backends.godot.full_disk DATA DISK ENGINE` prints the code of each call and the remaining files.
"""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.backends.godot.conftest import PROJECT, SCENE
from tests.conftest import run_gateway

MAIN_SCENE = {"scenePath": "main.tscn"}
LARGE = "x" * 40_000
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("write_script", {"scriptPath": "old.gd", "content": f"extends Node\n# {LARGE}\n", "overwrite": True}),
    ("write_script", {"scriptPath": "new.gd", "content": f"extends Node\n# {LARGE}\n"}),
    ("edit_node", {**MAIN_SCENE, "nodePath": "Player", "properties": {"editor_description": LARGE}}),
    ("save_scene", {**MAIN_SCENE, "newPath": "copy.tscn"}),
    ("create_resource", {"resourcePath": "g.tres", "resourceType": "Gradient"}),
    ("create_scene", {"scenePath": "scenes/new.tscn"}),
    ("set_project_setting", {"key": "application/config/description", "value": LARGE}),
    ("get_node_tree", MAIN_SCENE),
]


async def main(data: Path, disk: Path, engine: str) -> None:
    await asyncio.to_thread(_mount_small_disk, disk)
    project = disk / "game"
    files = {"project.godot": PROJECT, "main.tscn": SCENE, "old.gd": "extends Node\n"}
    project.mkdir()
    for name, text in files.items():
        (project / name).write_text(text)
    entry = {"module": "backends.godot", "options": {"godot_path": engine, "roots": [str(disk)]}}
    async with run_gateway(data, backends={"godot": entry}) as gateway:
        # Start the engine, which writes its own files into the project, before the disk is filled.
        await gateway.call("godot_get_script_errors", {"projectPath": str(project), "scriptPath": "old.gd"})
        _fill_disk(disk)
        codes: list[str] = []
        for tool, arguments in CALLS:
            answer = await gateway.call(f"godot_{tool}", {"projectPath": str(project), **arguments})
            envelope = answer["result"]["structuredContent"]
            codes.append("ok" if envelope["ok"] else envelope["error"]["code"])
    unchanged = {name: (project / name).read_text() == text for name, text in files.items()}
    remaining = sorted(path.name for path in project.iterdir() if path.is_file())
    print(json.dumps({"codes": codes, "unchanged": unchanged, "remaining": remaining}))


def _mount_small_disk(disk: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", disk], check=True)


def _fill_disk(disk: Path) -> None:
    try:
        with (disk / "filler").open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 1024)
    except OSError:
        return


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]))
