"""docs/godot.md covers every option and error code."""

from pathlib import Path

from backends.godot.envelope import CODES
from backends.godot.options import Options
from backends.godot.tool_table import TOOLS

MANUAL = (Path(__file__).parents[3] / "docs" / "godot.md").read_text()


def test_every_option_is_documented() -> None:
    assert [name for name in Options.model_fields if f"`{name}`" not in MANUAL] == []
    assert all(field.description for field in Options.model_fields.values())


def test_every_error_code_is_documented() -> None:
    assert [code for code in set(CODES.values()) if f"`{code}`" not in MANUAL] == []


def test_every_tool_and_action_has_a_row() -> None:
    rows = [
        f"| `{tool.name}` `{action.name}` |" if action else f"| `{tool.name}` |"
        for tool in TOOLS.values()
        for action in tool.actions or (None,)
    ]
    assert [row for row in rows if row not in MANUAL] == []
