"""Validation of listed items: each is accepted or rejected separately, with a reason."""

from typing import Any

import pytest

from gateway.catalogue.validation import validate_prompts, validate_resources, validate_templates, validate_tools

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


def rejection_reason(item: Any, *, trusted: bool = False) -> str:
    """The reason why one tool between two valid ones is rejected."""
    valid, rejected = validate_tools([tool("first"), item, tool("last")], trusted=trusted)
    assert [kept["name"] for kept in valid] == ["first", "last"]
    assert len(rejected) == 1
    return next(iter(rejected.values()))


def test_valid_tool_is_unchanged() -> None:
    item = tool(title="T", description="Line\r\n\tone ⚠️ 1️⃣ 👨‍👩‍👧 é", annotations={"title": "x"}, custom={"kept": 1})
    assert validate_tools([item], trusted=False) == ([item], {})


@pytest.mark.parametrize(
    ("item", "reason"),
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
def test_invalid_tool_is_rejected_with_a_reason(item: Any, reason: str) -> None:
    assert reason in rejection_reason(item)


def test_trusted_module_may_omit_the_input_schema_and_have_longer_descriptions() -> None:
    item = {"name": "t", "description": "x" * 16_384}
    valid, rejected = validate_tools([item], trusted=True)
    assert valid == [{**item, "inputSchema": {"type": "object"}}]
    assert rejected == {}
    assert "inputSchema" not in item
    assert "over 16384 bytes" in rejection_reason({"name": "t", "description": "x" * 16_385}, trusted=True)


def test_output_schema_is_never_compiled() -> None:
    item = tool(outputSchema={"type": "object", "properties": {"a": {"$ref": "http://x.test/s"}}})
    assert validate_tools([item], trusted=False) == ([item], {})


def test_of_two_tools_with_the_same_name_the_first_is_served() -> None:
    first, second = tool("t", title="first"), tool("t", title="second")
    valid, rejected = validate_tools([first, second], trusted=False)
    assert valid == [first]
    assert list(rejected) == ["t#1"]


def test_second_definition_does_not_replace_an_invalid_first_one() -> None:
    valid, rejected = validate_tools([tool("t", description="\u202e"), tool("t")], trusted=False)
    assert valid == []
    assert set(rejected) == {"t", "t#1"}


@pytest.mark.parametrize("text", HIDDEN.values(), ids=HIDDEN)
def test_threat_17_hidden_text_is_quarantined_in_every_field_a_model_reads(text: str) -> None:
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
        assert "hidden character" in rejection_reason(item)
    assert validate_prompts([{"name": "p", "arguments": [{"name": "a", "description": text}]}], trusted=False)[0] == []
    assert validate_resources([{"uri": "a://b", "name": "r", "description": text}], trusted=False)[0] == []


def test_property_may_have_the_name_description() -> None:
    item = tool(inputSchema={"type": "object", "properties": {"description": {"type": "string"}, "title": {}}})
    assert validate_tools([item], trusted=False) == ([item], {})


@pytest.mark.parametrize(
    ("item", "is_valid"),
    [
        ({"name": "p"}, True),
        ({"name": "p", "arguments": [{"name": "a", "required": True}]}, True),
        ({"name": "p", "arguments": {}}, False),
        ({"name": "p", "arguments": ["a"]}, False),
        ({"name": "p", "arguments": [{"name": 7}]}, False),
        ({"name": ""}, False),
    ],
)
def test_prompts_need_a_name_and_named_arguments(item: dict[str, Any], is_valid: bool) -> None:
    valid, rejected = validate_prompts([item], trusted=False)
    assert (valid == [item], bool(rejected)) == (is_valid, not is_valid)


@pytest.mark.parametrize(
    ("uri", "is_valid"),
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
def test_resources_need_a_valid_uri(uri: Any, is_valid: bool) -> None:
    item = {"uri": uri, "name": "r"}
    valid, rejected = validate_resources([item], trusted=False)
    assert (valid == [item], bool(rejected)) == (is_valid, not is_valid)


@pytest.mark.parametrize(
    ("template", "is_valid"),
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
def test_templates_need_balanced_braces(template: str, is_valid: bool) -> None:
    item = {"uriTemplate": template, "name": "r"}
    valid, rejected = validate_templates([item], trusted=False)
    assert (valid == [item], bool(rejected)) == (is_valid, not is_valid)


def test_items_above_the_limit_are_dropped_and_reported() -> None:
    valid, rejected = validate_resources([{"uri": f"a://{n}", "name": "r"} for n in range(5_003)], trusted=False)
    assert len(valid) == 5_000
    assert list(rejected.values()) == ["5003 items are listed; only the first 5000 are served"]
