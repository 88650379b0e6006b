"""Settings files: one key changes, the rest of the file does not."""

from hypothesis import given
from hypothesis import strategies as st

from backends.godot.text import settings
from backends.godot.text.scan import quoted

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


def test_a_value_is_replaced_where_it_stands() -> None:
    after = settings.put(FILE, "application", "config/name", '"Hill"')
    assert after == FILE.replace('"Meadow"', '"Hill"')


def test_a_new_key_joins_its_section() -> None:
    after = settings.put(FILE, "application", "config/icon", '"res://icon.svg"')
    assert after == FILE.replace('"res://main.tscn"', '"res://main.tscn"\nconfig/icon="res://icon.svg"')


def test_a_new_section_goes_to_the_end() -> None:
    assert (
        settings.put(FILE, "autoload", "Game", '"*res://game.gd"') == FILE + '\n[autoload]\n\nGame="*res://game.gd"\n'
    )


def test_a_key_taken_away_takes_its_line_only() -> None:
    assert settings.drop(FILE, "application", "config/name") == FILE.replace(
        'config/name="Meadow" ; ours\n', "; ours\n"
    )
    assert settings.drop(FILE, "application", "absent") == FILE


def test_simple_values_are_read_as_json() -> None:
    values = settings.values(FILE)
    assert values[""]["config_version"] == 5
    assert values["application"]["config/name"] == "Meadow"
    assert "InputEventKey" in values["input"]["jump"]


@given(
    st.from_regex(r"[a-z]{1,8}", fullmatch=True), st.from_regex(r"[a-z/_]{1,12}", fullmatch=True), st.text(max_size=30)
)
def test_what_is_put_is_read_and_everything_else_stays(section: str, key: str, value: str) -> None:
    literal = quoted(value.encode("utf-8", "replace").decode())
    before = settings.sections(FILE)
    after = settings.sections(settings.put(FILE, section, key, literal))
    assert after[section][key] == literal
    after[section].pop(key)
    before.get(section, {}).pop(key, None)
    assert {name: keys for name, keys in after.items() if keys} == {name: keys for name, keys in before.items() if keys}
