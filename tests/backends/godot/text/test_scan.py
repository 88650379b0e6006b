"""The grammar: every part knows its span, and nothing is read that Godot would not read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.godot.text.scan import Malformed, apply, property_name, quoted, scan, unquoted

TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=40)


def test_sections_attributes_and_properties_are_found_with_their_spans() -> None:
    text = '[node name="A" groups=["x", "y"]]\nposition = Vector2(1, 2)\ntext = "[b]\n; not a comment"\n\n[tail]\n'
    node, tail = scan(text)
    assert (node.tag, tail.tag) == ("node", "tail")
    assert [(each.name, each.value) for each in node.attributes] == [("name", '"A"'), ("groups", '["x", "y"]')]
    for each in node.properties:
        assert text[each.value_start : each.end] == each.value
    assert node.string("name") == "A"
    found = node.property("text")
    assert found is not None
    assert unquoted(found.value) == "[b]\n; not a comment"


def test_a_value_may_run_over_lines_and_hold_comments() -> None:
    (section,) = scan('[a]\nx = {\n"k": [1, ; why\n2],\n"s": "}"\n}\ny = 1\n')
    assert [each.name for each in section.properties] == ["x", "y"]
    assert section.properties[0].value.endswith("}")


def test_a_comment_behind_a_value_is_not_part_of_it() -> None:
    (section,) = scan("[a]\nx = 1 ; one\ny = 2\n")
    assert [(each.name, each.value) for each in section.properties] == [("x", "1"), ("y", "2")]


@pytest.mark.parametrize(
    "text", ['[a]\nx = "open', "[a]\nx = [1, 2", "[a b]\n", "[a", "[a]\nx\n", "[a]\nx = )\n", "[a x=]\n", "[]\n"]
)
def test_what_godot_would_not_read_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(Malformed, match=r"line \d"):
        scan(text)


@given(TEXTS)
def test_any_text_survives_being_quoted(text: str) -> None:
    assert unquoted(quoted(text)) == text
    (section,) = scan(f"[a]\nx = {quoted(text)}\ny = 1\n")
    assert unquoted(section.properties[0].value) == text
    assert section.properties[1].value == "1"


@given(TEXTS.filter(lambda text: text.strip() != ""))
def test_any_property_name_survives_being_written(name: str) -> None:
    (section,) = scan(f"[a]\n{property_name(name)} = 1\n")
    assert section.properties[0].name == name


@given(st.text(max_size=200))
def test_no_text_crashes_the_scanner(text: str) -> None:
    try:
        sections = scan(text)
    except Malformed:
        return
    for section in sections:
        assert 0 <= section.start <= section.header_end <= section.content_end <= section.end <= len(text)


def test_edits_are_applied_to_the_spans_they_were_made_for() -> None:
    assert apply("abcdef", [(0, 1, "X"), (3, 3, "-"), (5, 6, "")]) == "Xbc-de"
