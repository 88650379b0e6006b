"""The command `gatehouse demo godot`, run as a new user would run it."""

from pathlib import Path

import pytest

from tests.engines import godot as installer
from tests.flows.process import ROOT, run
from tests.prerequisites import skip_or_fail


@pytest.fixture(scope="module")
def engine() -> str:
    found = installer.installed()
    if found is None:
        reason = "Godot is not installed: run `make engines`"
        skip_or_fail(reason)
    return str(found)


def test_demo_builds_and_runs_a_game_whose_tree_matches_the_documentation(engine: str, tmp_path: Path) -> None:
    result = run(tmp_path, "demo", "godot", "--engine", engine, "--folder", "kept")
    assert (result.returncode, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert len(lines) < 40
    assert max(map(len, lines)) < 120
    notes = [line[13:] for line in lines if line[9:13] == "    "]
    assert notes[:2] == ["every script compiles, every scene loads", "the game ran and printed: ready: 3 coins"]
    assert "\n".join(notes[2:]) in (ROOT / "docs" / "godot.md").read_text("utf-8")
    (project,) = (tmp_path / "kept").rglob("project.godot")
    assert (project.parent / "main.tscn").is_file()


def test_demo_without_an_engine_explains_how_to_set_one(tmp_path: Path) -> None:
    result = run(tmp_path, "demo", "godot", "--json", GODOT_PATH="/no/such/godot")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == "gatehouse: no Godot 4 engine found; pass --engine or set GODOT_PATH\n"
