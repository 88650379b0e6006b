"""Runs the walk-through of docs/godot.md as it is written."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.engines import godot
from tests.prerequisites import skip_or_fail
from tests.repo.documents import ROOT, find_block

PAGE = ROOT / "docs" / "godot.md"


@pytest.fixture
def served(terminal: Callable[[Path], Any], tmp_path: Path) -> Iterator[Any]:
    engine = godot.installed()
    if engine is None:
        skip_or_fail("no Godot here: `make engines` fetches one")
    (tmp_path / "gatehouse.yaml").write_text(find_block(PAGE, "file", "gatehouse.yaml").text, "utf-8")
    shell = terminal(tmp_path)
    shell = replace(shell, environment=shell.environment | {"GODOT_PATH": str(engine)})
    with shell.serve("gatehouse serve") as running:
        yield running


def test_walk_through_creates_and_runs_a_game_and_prints_its_tree(served: Any) -> None:
    ended = served.run(find_block(PAGE, "tested", "hello-game").text)
    assert ended.returncode == 0
    assert ended.stdout == find_block(PAGE, "output", "hello-game").text
    game = served.terminal.folder / "games" / "hello"
    assert 'script = ExtResource("' in (game / "main.tscn").read_text()
