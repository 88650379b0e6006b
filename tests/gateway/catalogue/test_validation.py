"""What a backend lists: each item taken or left by itself, with the reason."""

from typing import Any

import pytest

from gateway.catalogue.validation import take_prompts, take_resources, take_templates, take_tools

HIDDEN = {
    "ANSI": "red \x1b[31mtext",
    "C0": "a\x07b",
    "C1": "a\x9bb",
    "DEL": "a\x7fb",
    "zero width space": "a\u200bb",
    "zero width joiner": "a\u200db",
    "word joiner": "a\u2060b",
    "byte order mark": "a\ufeffb",
    "bidi override": "a\u202eb",
    "bidi isolate": "a\u2066b",
    "tag": "a\U000e0041b",
    "more variation selectors": "a\U000e0101b",
    "variation selector": "a\ufe01b",
    "emoji selector without emoji": "a\ufe0fb",
    "two emoji selectors": "⚠️\ufe0f",
    "private use": "a\ue000b",
    "filler": "a\u3164b",
    "line separator": "a\u2028b",
    "lone carriage return": "a\rb",
}


def tool(name: Any = "t", **more: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}, **more}


def why(item: Any, *, trusted: bool = False) -> str:
    """The reason one tool between two sound ones is not served."""
    good, bad = take_tools([tool("first"), item, tool("last")], trusted=trusted)
    assert [kept["name"] for kept in good] == ["first", "last"]
    assert len(bad) == 1
    return next(iter(bad.values()))


def test_a_sound_tool_is_taken_as_it_is() -> None:
    item = tool(title="T", description="Line\r\n\tone ⚠️ 1️⃣ 👨‍👩‍👧 é", annotations={"title": "x"}, custom={"kept": 1})
    assert take_tools([item], trusted=False) == ([item], {})


@pytest.mark.parametrize(
    ("item", "words"),
    [
        (7, "not an object"),
        ({"inputSchema": {"type": "object"}}, "name is not a string"),
        (tool(""), "printable"),
        (tool("x" * 129), "printable"),
        (tool("a\nb"), "printable"),
        (tool("a\u200bb"), "printable"),
        ({"name": "t"}, "inputSchema is not an object"),
        (tool(inputSchema=True), "inputSchema is not an object"),
        (tool(inputSchema={}), "root"),
        (tool(inputSchema={"type": ["object"]}), "root"),
        (tool(inputSchema={"type": "object", "properties": {"a": {"type": "zzz"}}}), "zzz"),
        (tool(inputSchema={"type": "object", "$ref": "http://x.test/s"}), "nothing is fetched"),
        (tool(inputSchema={"type": "object", "description": "x " * 40_000}), "bytes"),
        (tool(outputSchema=[]), "outputSchema is not an object"),
        (tool(outputSchema={"enum": ["x" * 70_000]}), "outputSchema is over"),
        (tool(custom="x" * 140_000), "the definition is over"),
        (tool(custom="\ud800"), "not JSON"),
        (tool(description=7), "description is not a string"),
        (tool(annotations=[]), "annotations is not an object"),
        (tool(description="x" * 4_097), "over 4096 bytes"),
        (
            tool(inputSchema={"type": "object", "properties": {"a": {"type": "number", "x-mcp-header": "A"}}}),
            "x-mcp-header",
        ),
    ],
    ids=range(21),
)
def test_an_unsound_tool_is_left_out_with_its_reason(item: Any, words: str) -> None:
    assert words in why(item)


def test_a_trusted_module_may_leave_out_its_input_schema_and_say_more() -> None:
    given = {"name": "t", "description": "x" * 16_384}
    good, bad = take_tools([given], trusted=True)
    assert good == [{**given, "inputSchema": {"type": "object"}}]
    assert bad == {}
    assert "inputSchema" not in given
    assert "over 16384 bytes" in why({"name": "t", "description": "x" * 16_385}, trusted=True)


def test_an_output_schema_is_never_compiled() -> None:
    item = tool(outputSchema={"type": "object", "properties": {"a": {"$ref": "http://x.test/s"}}})
    assert take_tools([item], trusted=False) == ([item], {})


def test_of_two_tools_with_one_name_the_first_is_served() -> None:
    first, second = tool("t", title="first"), tool("t", title="second")
    good, bad = take_tools([first, second], trusted=False)
    assert good == [first]
    assert list(bad) == ["t#1"]


def test_a_second_definition_does_not_stand_in_for_a_bad_first_one() -> None:
    good, bad = take_tools([tool("t", description="\u202e"), tool("t")], trusted=False)
    assert good == []
    assert set(bad) == {"t", "t#1"}


@pytest.mark.parametrize("text", HIDDEN.values(), ids=HIDDEN)
def test_threat_17_hidden_text_is_quarantined_wherever_a_model_would_read_it(text: str) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "description": text}}}
    for item in (
        tool(description=text),
        tool(title=text),
        tool(annotations={"title": text}),
        tool(inputSchema=schema),
        tool(outputSchema=schema),
        tool(inputSchema={"type": "object", "properties": {"a": {"enum": ["fine", text]}}}),
        tool(inputSchema={"type": "object", "properties": {"a": {"default": text, "examples": [text]}}}),
        tool(inputSchema={"type": "object", "properties": {text: {}}}),
        tool(icons=[{"src": text}]),
    ):
        assert "hidden character" in why(item)
    assert take_prompts([{"name": "p", "arguments": [{"name": "a", "description": text}]}], trusted=False)[0] == []
    assert take_resources([{"uri": "a://b", "name": "r", "description": text}], trusted=False)[0] == []


def test_a_property_may_be_called_description() -> None:
    item = tool(inputSchema={"type": "object", "properties": {"description": {"type": "string"}, "title": {}}})
    assert take_tools([item], trusted=False) == ([item], {})


@pytest.mark.parametrize(
    ("item", "sound"),
    [
        ({"name": "p"}, True),
        ({"name": "p", "arguments": [{"name": "a", "required": True}]}, True),
        ({"name": "p", "arguments": {}}, False),
        ({"name": "p", "arguments": ["a"]}, False),
        ({"name": "p", "arguments": [{"name": 7}]}, False),
        ({"name": ""}, False),
    ],
)
def test_prompts_need_a_name_and_named_arguments(item: dict[str, Any], sound: bool) -> None:
    good, bad = take_prompts([item], trusted=False)
    assert (good == [item], bool(bad)) == (sound, not sound)


@pytest.mark.parametrize(
    ("uri", "sound"),
    [
        ("gox://runs", True),
        ("file:///srv/a%20b", True),
        ("urn:x:y", True),
        ("no-scheme", False),
        ("http://[bad", False),
        ("a://b c", False),
        ("a://b\u202ec", False),
        ("a://" + "x" * 2_048, False),
        ("", False),
        (None, False),
    ],
)
def test_resources_need_an_address_that_can_be_parsed(uri: Any, sound: bool) -> None:
    item = {"uri": uri, "name": "r"}
    good, bad = take_resources([item], trusted=False)
    assert (good == [item], bool(bad)) == (sound, not sound)


@pytest.mark.parametrize(
    ("template", "sound"),
    [
        ("gox://runs/{id}", True),
        ("a://{x}/{?y,z}", True),
        ("plain://x", True),
        ("a://{x", False),
        ("a://x}", False),
        ("a://{{x}}", False),
        ("a://}x{", False),
    ],
)
def test_templates_need_braces_that_match(template: str, sound: bool) -> None:
    item = {"uriTemplate": template, "name": "r"}
    good, bad = take_templates([item], trusted=False)
    assert (good == [item], bool(bad)) == (sound, not sound)


def test_a_list_is_read_up_to_its_cap_and_says_so() -> None:
    good, bad = take_resources([{"uri": f"a://{n}", "name": "r"} for n in range(5_003)], trusted=False)
    assert len(good) == 5_000
    assert list(bad.values()) == ["5003 are listed; only the first 5000 are looked at"]
