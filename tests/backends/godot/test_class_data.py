"""The shipped class data is what the real engine says."""

from pathlib import Path

from backends.godot.class_data import ClassData
from tests.engines.class_data import dump, load_shipped


def test_shipped_data_equals_the_dump_of_the_installed_engine(engine: Path) -> None:
    found = dump(engine)
    shipped = load_shipped(found["version"])
    assert shipped["settings"] == found["settings"]
    assert shipped["classes"] == found["classes"]


def test_defaults_of_a_subclass_win_over_those_of_its_parent() -> None:
    data = ClassData()
    assert data.property("Control", "mouse_filter") == ("int", "0")
    assert data.property("Label", "mouse_filter") == ("int", "2")
    assert data.property("Label", "no_such") is None
    assert data.inherits("Label", "CanvasItem")
    assert "body_entered" in data.signals("Area2D")
    assert data.setting("display/window/size/viewport_width") == ("int", "1152")
