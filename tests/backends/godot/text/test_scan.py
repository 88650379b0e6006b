"""The scanner: spans of all parts, and rejection of malformed text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.godot.text.scan import MalformedText, apply_edits, format_property_name, quote, scan, unquote

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
    assert unquote(found.value) == "[b]\n; not a comment"


def test_value_may_span_lines_and_contain_comments() -> None:
    (section,) = scan('[a]\nx = {\n"k": [1, ; why\n2],\n"s": "}"\n}\ny = 1\n')
    assert [each.name for each in section.properties] == ["x", "y"]
    assert section.properties[0].value.endswith("}")


def test_comment_after_a_value_is_not_part_of_it() -> None:
    (section,) = scan("[a]\nx = 1 ; one\ny = 2\n")
    assert [(each.name, each.value) for each in section.properties] == [("x", "1"), ("y", "2")]


@pytest.mark.parametrize(
    "text", ['[a]\nx = "open', "[a]\nx = [1, 2", "[a b]\n", "[a", "[a]\nx\n", "[a]\nx = )\n", "[a x=]\n", "[]\n"]
)
def test_malformed_text_is_rejected_with_its_line(text: str) -> None:
    with pytest.raises(MalformedText, match=r"line \d"):
        scan(text)


@given(TEXTS)
def test_any_text_survives_quoting(text: str) -> None:
    assert unquote(quote(text)) == text
    (section,) = scan(f"[a]\nx = {quote(text)}\ny = 1\n")
    assert unquote(section.properties[0].value) == text
    assert section.properties[1].value == "1"


@given(TEXTS.filter(lambda text: text.strip() != ""))
def test_any_property_name_survives_formatting(name: str) -> None:
    (section,) = scan(f"[a]\n{format_property_name(name)} = 1\n")
    assert section.properties[0].name == name


@given(st.text(max_size=200))
def test_no_text_crashes_the_scanner(text: str) -> None:
    try:
        sections = scan(text)
    except MalformedText:
        return
    for section in sections:
        assert 0 <= section.start <= section.header_end <= section.content_end <= section.end <= len(text)


def test_edits_are_applied_to_their_spans() -> None:
    assert apply_edits("abcdef", [(0, 1, "X"), (3, 3, "-"), (5, 6, "")]) == "Xbc-de"
