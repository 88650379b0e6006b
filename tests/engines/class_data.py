"""`python -m tests.engines.class_data` writes the class data of the installed engine into the backend."""

import gzip
import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from tests.engines import godot

BACKEND = Path(__file__).parents[2] / "backends" / "godot"
DUMP = BACKEND / "engine" / "class_dump.gd"


def dump(engine: Path) -> dict[str, Any]:
    """Return classes and settings of an engine, in the format of the shipped files."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "project.godot").write_text("config_version=5\n")
        command = [engine, "--headless", "--no-header", "--path", folder, "--script", DUMP]
        done = subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=120, env={"HOME": folder}, cwd=folder
        )
    return json.loads(done.stdout.split("@@")[1].splitlines()[0])


def load_shipped(version: str) -> dict[str, Any]:
    return json.loads(gzip.decompress((BACKEND / "class_data" / f"{version}.json.gz").read_bytes()))


def write(found: dict[str, Any]) -> Path:
    target = BACKEND / "class_data" / f"{found['version']}.json.gz"
    text = json.dumps(found, separators=(",", ":"), ensure_ascii=False)
    # Without a time stamp the same data gives the same file.
    target.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    return target


if __name__ == "__main__":
    print(write(dump(godot.install())))
