"""Span-based edits of settings files: only the requested key changes."""

from hypothesis import given
from hypothesis import strategies as st

from backends.godot.text import settings
from backends.godot.text.scan import quote

FILE = """; Engine configuration file.
config_version=5

[application]

config/name="Meadow" ; ours
run/main_scene="res://main.tscn"

[input]

jump={
"deadzone": 0.5,
"events": [Object(InputEventKey,"pressed":false)]
}
"""


def test_existing_value_is_replaced_in_place() -> None:
    after = settings.set_value(FILE, "application", "config/name", '"Hill"')
    assert after == FILE.replace('"Meadow"', '"Hill"')


def test_new_key_is_added_to_its_section() -> None:
    after = settings.set_value(FILE, "application", "config/icon", '"res://icon.svg"')
    assert after == FILE.replace('"res://main.tscn"', '"res://main.tscn"\nconfig/icon="res://icon.svg"')


def test_new_section_is_added_at_the_end() -> None:
    assert (
        settings.set_value(FILE, "autoload", "Game", '"*res://game.gd"')
        == FILE + '\n[autoload]\n\nGame="*res://game.gd"\n'
    )


def test_removing_a_key_removes_only_its_line() -> None:
    assert settings.remove_key(FILE, "application", "config/name") == FILE.replace(
        'config/name="Meadow" ; ours\n', "; ours\n"
    )
    assert settings.remove_key(FILE, "application", "absent") == FILE


def test_simple_values_are_read_as_json() -> None:
    values = settings.values(FILE)
    assert values[""]["config_version"] == 5
    assert values["application"]["config/name"] == "Meadow"
    assert values["input"]["jump"]["events"][0]["class"] == "InputEventKey"


@given(
    st.from_regex(r"[a-z]{1,8}", fullmatch=True), st.from_regex(r"[a-z/_]{1,12}", fullmatch=True), st.text(max_size=30)
)
def test_set_value_is_read_back_and_everything_else_is_unchanged(section: str, key: str, value: str) -> None:
    literal = quote(value.encode("utf-8", "replace").decode())
    before = settings.sections(FILE)
    after = settings.sections(settings.set_value(FILE, section, key, literal))
    assert after[section][key] == literal
    after[section].pop(key)
    before.get(section, {}).pop(key, None)
    assert {name: keys for name, keys in after.items() if keys} == {name: keys for name, keys in before.items() if keys}
