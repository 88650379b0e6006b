"""The manual agrees with the code."""

from pathlib import Path

from backends.godot.envelope import WORDS
from backends.godot.options import Options

MANUAL = (Path(__file__).parents[3] / "docs" / "godot.md").read_text()


def test_every_option_is_in_the_manual() -> None:
    assert [name for name in Options.model_fields if f"`{name}`" not in MANUAL] == []
    assert all(field.description for field in Options.model_fields.values())


def test_every_code_is_in_the_manual() -> None:
    assert [code for code in set(WORDS.values()) if f"`{code}`" not in MANUAL] == []
