"""The walk-through: an empty folder becomes a game that runs, by tool calls alone."""

from pathlib import Path
from typing import Any

from backends.godot.demo import steps

PICTURE = """\
Main (Node2D)
├─ Player (CharacterBody2D)
│  ├─ Shape (CollisionShape2D)
│  └─ Picture (Sprite2D)
├─ Coins (Node2D)
│  ├─ Coin1 (res://coin.tscn)
│  ├─ Coin2 (res://coin.tscn)
│  └─ Coin3 (res://coin.tscn)
└─ Score (Label)"""


async def test_an_empty_folder_becomes_a_game_that_runs(real: Any) -> None:
    answers: dict[str, Any] = {}
    for tool, arguments in steps(str(real.root / "coins")):
        envelope = await real.call(tool, **arguments)
        assert envelope["ok"], (tool, arguments, envelope["error"])
        answers[tool] = envelope["result"]
    assert answers["validate_project"]["valid"], answers["validate_project"]["issues"]
    assert "ready: 3 coins" in answers["godot_workspace_manager"]["output"]
    assert answers["godot_workspace_manager"]["errors"] == []
    assert answers["get_node_tree"]["picture"] == PICTURE


def test_the_manual_shows_the_picture_of_the_tree() -> None:
    manual = Path(__file__).parents[3] / "docs" / "godot.md"
    assert PICTURE in manual.read_text()
