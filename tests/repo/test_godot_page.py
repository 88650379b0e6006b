"""The walk-through of docs/godot.md, run as it is written."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.engines import godot
from tests.missing import missing
from tests.repo.documents import ROOT, marked

PAGE = ROOT / "docs" / "godot.md"


@pytest.fixture
def served(terminal: Callable[[Path], Any], tmp_path: Path) -> Iterator[Any]:
    engine = godot.installed()
    if engine is None:
        missing("no Godot here: `make engines` fetches one")
    (tmp_path / "gatehouse.yaml").write_text(marked(PAGE, "file", "gatehouse.yaml").text, "utf-8")
    shell = terminal(tmp_path)
    shell = replace(shell, environment=shell.environment | {"GODOT_PATH": str(engine)})
    with shell.serving("gatehouse serve") as running:
        yield running


def test_the_walk_through_makes_a_game_that_runs_and_draws_its_tree(served: Any) -> None:
    ended = served.run(marked(PAGE, "tested", "hello-game").text)
    assert ended.returncode == 0
    assert ended.stdout == marked(PAGE, "output", "hello-game").text
    game = served.terminal.folder / "games" / "hello"
    assert 'script = ExtResource("' in (game / "main.tscn").read_text()
