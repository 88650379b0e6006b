"""`gatehouse demo godot`, as a newcomer runs it."""

from pathlib import Path

import pytest

from tests.engines import godot as installer
from tests.flows.process import ROOT, run
from tests.missing import missing


@pytest.fixture(scope="module")
def engine() -> str:
    found = installer.installed()
    if found is None:
        reason = "no Godot here: `make engines` fetches one"
        missing(reason)
    return str(found)


def test_an_empty_folder_becomes_a_game_that_runs_and_its_tree_is_the_manuals(engine: str, tmp_path: Path) -> None:
    said = run(tmp_path, "demo", "godot", "--engine", engine, "--folder", "kept")
    assert (said.returncode, said.stderr) == (0, "")
    lines = said.stdout.splitlines()
    assert len(lines) < 40
    assert max(map(len, lines)) < 120
    notes = [line[13:] for line in lines if line[9:13] == "    "]
    assert notes[:2] == ["every script compiles, every scene loads", "it ran, and said: ready: 3 coins"]
    assert "\n".join(notes[2:]) in (ROOT / "docs" / "godot.md").read_text("utf-8")
    (project,) = (tmp_path / "kept").rglob("project.godot")
    assert (project.parent / "main.tscn").is_file()


def test_without_an_engine_it_says_how_to_name_one(tmp_path: Path) -> None:
    said = run(tmp_path, "demo", "godot", "--json", GODOT_PATH="/no/such/godot")
    assert (said.returncode, said.stdout) == (1, "")
    assert said.stderr == "gatehouse: there is no Godot 4 engine here; give one by --engine or GODOT_PATH\n"
