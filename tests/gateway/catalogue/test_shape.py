"""Shapes: patterns, rules, renamed tools, fixed and hidden arguments."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.catalogue.catalogue import McpEndpointConfig
from gateway.catalogue.list_format import ListFormat
from gateway.catalogue.shape import (
    EndpointShape,
    IdPattern,
    InvalidShape,
    ItemRule,
    ItemRules,
    Shape,
    shape_arguments,
)
from gateway.catalogue.snapshot import take_snapshot
from gateway.catalogue.view import View
from gateway.contract import MODERN, BackendLists, Json
from tests.gateway.fakes import ALICE, FakeBackend, Rig

SCHEMA: Json = {
    "type": "object",
    "properties": {"project": {"type": "string"}, "labels": {"type": "array"}, "count": {"type": "integer"}},
    "required": ["project"],
    "additionalProperties": False,
}


def tool(name: str, schema: Json | None = None) -> Json:
    return {"name": name, "inputSchema": schema or {"type": "object"}}


def allow(pattern: str, **more: Any) -> ItemRule:
    return ItemRule(pattern=IdPattern(pattern), **more)


def deny(pattern: str) -> ItemRule:
    return ItemRule(pattern=IdPattern(pattern), deny=True)


def shaped_view(*rules: ItemRule, tools: tuple[Json, ...], mode: Any = "underscore", entry: Any = ()) -> View:
    backend = FakeBackend(tools=tools)
    shape = EndpointShape(
        backends={"lab": Shape(tools=ItemRules(tuple(entry)))},
        server=Shape(tools=ItemRules(rules)),
        path="/mcp/desk",
    )
    always = lambda route: True  # noqa: E731
    return View([take_snapshot(backend, backend.lists)], mode, ListFormat(), always, always, shape)


def listed(view: View) -> list[str]:
    return [each["name"] for each in json.loads(view.page("tools/list", None, MODERN))["tools"]]


# ---- patterns


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("a.b", ["a.b"], ["a.bc", "xa.b", "aXb"]),
        ("a.*", ["a.", "a.b", "a.b.c"], ["b.a.x", "a"]),
        ("*_issue*", ["a.get_issue", "a.x_issues"], ["a.issue"]),
        ("a*b*c", ["abc", "a1b2c", "abbcc"], ["acb", "ab", "c"]),
        ("ab*ba", ["abba", "abxba"], ["aba", "ab"]),
        ("a[x]?", ["a[x]?"], ["ax1"]),
        ("*", ["", "anything\n"], []),
    ],
)
def test_star_matches_any_text_and_all_else_is_literal(pattern: str, matching: list[str], other: list[str]) -> None:
    found = IdPattern(pattern)
    assert all(map(found.matches, matching))
    assert not any(map(found.matches, other))


@given(st.text("ab*", max_size=8), st.text("ab*", max_size=8), st.text("ab", max_size=8))
def test_covering_pattern_matches_all_that_the_covered_one_matches(one: str, other: str, id: str) -> None:
    wide, narrow = IdPattern(one), IdPattern(other)
    if wide.covers(narrow) and narrow.matches(id):
        assert wide.matches(id)


def test_first_matching_rule_decides() -> None:
    view = shaped_view(deny("lab.delete_*"), allow("lab.*_issue"), tools=(tool("delete_issue"), tool("get_issue")))
    assert listed(view) == ["lab_get_issue"]
    view = shaped_view(allow("lab.*_issue"), deny("lab.delete_*"), tools=(tool("delete_issue"), tool("get_issue")))
    assert listed(view) == ["lab_delete_issue", "lab_get_issue"]


def test_unmatched_item_is_served_unless_another_rule_allows_something() -> None:
    tools = (tool("a"), tool("b"), tool("c"))
    assert listed(shaped_view(tools=tools)) == ["lab_a", "lab_b", "lab_c"]
    assert listed(shaped_view(deny("lab.a"), tools=tools)) == ["lab_b", "lab_c"]
    assert listed(shaped_view(deny("lab.a"), allow("lab.b"), tools=tools)) == ["lab_b"]


# ---- names


def test_name_of_another_tool_is_never_taken() -> None:
    for mode, taken in (("underscore", "lab_b"), ("dotted", "lab_b"), ("bare", "b")):
        view = shaped_view(allow("lab.a", name=taken), allow("*"), tools=(tool("a"), tool("b")), mode=mode)
        assert view.tools[taken].canonical == "lab.b"
        assert view.tools["lab.a"].canonical == view.tools["lab_a"].canonical == "lab.a"
        assert view.problems == [f"lab.a: the name {taken!r} is the name of lab.b"]
        assert len(set(listed(view))) == 2


def test_name_of_a_denied_tool_can_be_given_to_another() -> None:
    view = shaped_view(allow("lab.a", name="lab_b"), tools=(tool("a"), tool("b")))
    assert listed(view) == ["lab_b"]
    assert view.tools["lab_b"].canonical == "lab.a"
    assert view.tools.get("lab.b") is None


async def test_backend_that_renames_its_tools_affects_only_the_renamed_tool() -> None:
    rules = (allow("lab.a", name="first"), allow("lab.b", name="second"), allow("lab.c"))
    endpoint = McpEndpointConfig("/mcp/desk", "underscore", ("lab",), "desk", Shape(tools=ItemRules(rules)))
    backend = FakeBackend(tools=(tool("a"), tool("b")))
    async with Rig(backend, endpoints=[endpoint]) as rig:
        view = rig.catalogue.view(ALICE, "/mcp/desk")
        assert view is not None
        assert listed(view) == ["first", "second"]
        backend.lists = BackendLists(tools=(tool("first"), tool("b"), tool("c")), capabilities=backend.capabilities)
        await rig.catalogue.refresh(backend)
        view = rig.catalogue.view(ALICE, "/mcp/desk")
        assert view is not None
        assert listed(view) == ["second", "lab_c"]
        assert view.tools.get("first") is None


async def test_renamed_tool_is_found_after_a_refresh_of_its_backend() -> None:
    rules = ItemRules((allow("lab.a", name="first"), allow("*")))
    endpoint = McpEndpointConfig("/mcp/desk", "underscore", ("lab", "other"), "desk", Shape(tools=rules))
    backend = FakeBackend(tools=())
    async with Rig(backend, FakeBackend("other"), endpoints=[endpoint]) as rig:
        view = rig.catalogue.view(ALICE, "/mcp/desk")
        assert view is not None
        assert view.namespace_of_name("first") == view.namespace_of_name("lab_x") == "lab"
        assert view.namespace_of_name("other.x") == "other"
        assert view.namespace_of_name("second") is view.namespace_of_name("none_x") is None


# ---- arguments


def test_withheld_arguments_leave_the_schema() -> None:
    shown, shape = shape_arguments(SCHEMA, {"project": "SUP"}, ["labels"])
    assert shown == {
        "type": "object",
        "properties": {"count": {"type": "integer"}},
        "additionalProperties": False,
    }
    assert (shape.fixed, shape.withheld) == ({"project": "SUP"}, {"project", "labels"})


@pytest.mark.parametrize(
    ("fixed", "hidden", "reason"),
    [
        ({"project": 1}, [], "set: 'project' has an invalid value"),
        ({"projekt": "SUP"}, [], "set: it has no argument 'projekt'"),
        ({}, ["project"], "hide: 'project' is required; give its value in set"),
    ],
)
def test_arguments_that_cannot_be_withheld_are_refused(fixed: Json, hidden: list[str], reason: str) -> None:
    with pytest.raises(InvalidShape, match=reason):
        shape_arguments(SCHEMA, fixed, hidden)


def test_hidden_argument_that_the_tool_does_not_have_is_ignored() -> None:
    assert shape_arguments(SCHEMA, {}, ["unknown"])[0] == SCHEMA


def test_argument_of_one_alternative_leaves_all_alternatives() -> None:
    schema: Json = {
        "type": "object",
        "oneOf": [
            {"properties": {"action": {"const": "a"}, "path": {"type": "string"}}, "required": ["action", "path"]},
            {"properties": {"action": {"const": "b"}}, "required": ["action"]},
        ],
    }
    for mode in ("underscore", "dotted", "bare"):
        view = shaped_view(allow("lab.a", hidden=frozenset({"path"})), tools=(tool("a", schema),), mode=mode)
        shown = view.items("tools/list")[0]["inputSchema"]
        assert set(shown["properties"]) == {"action"}
        assert "oneOf" not in shown


def test_fixed_value_is_not_shared_between_calls() -> None:
    _, shape = shape_arguments({"type": "object", "properties": {"tags": {}}}, {"tags": ["a"]}, [])
    shape.complete({})["tags"].append("b")
    assert shape.complete({}) == {"tags": ["a"]}


def test_value_set_by_the_backend_entry_is_not_changed_by_a_server() -> None:
    view = shaped_view(
        allow("lab.a", fixed={"project": "OPS", "count": 2}),
        tools=(tool("a", SCHEMA),),
        entry=[allow("lab.*", fixed={"project": "SUP"})],
    )
    shape = view.tools["lab.a"].shape
    assert shape is not None
    assert shape.fixed == {"project": "SUP", "count": 2}


# ---- what no rule may allow

NAMES = st.sampled_from(["a", "b", "ab", "lab_a", "lab_b", "a.b", "delete_a"])
PATTERNS = st.sampled_from(["lab.a", "lab.b", "lab.*", "lab.a*", "*b", "*", "lab.delete_*"])
RULES = st.lists(
    st.builds(
        lambda pattern, denied, name: (
            deny(pattern) if denied else allow(pattern, name=name if "*" not in pattern else None)
        ),
        PATTERNS,
        st.booleans(),
        st.one_of(st.none(), st.sampled_from(["a", "b", "lab_a", "lab_b", "new"])),
    ),
    max_size=4,
)


@given(
    st.lists(NAMES, unique=True, max_size=5),
    RULES,
    RULES,
    st.sampled_from(["underscore", "dotted", "bare"]),
)
def test_no_name_leads_to_a_tool_that_a_rule_denies(
    names: list[str], entry: list[ItemRule], rules: list[ItemRule], mode: str
) -> None:
    view = shaped_view(*rules, tools=tuple(map(tool, names)), mode=mode, entry=entry)
    for route in view.tools.values():
        for each in (entry, rules):
            first = next((rule for rule in each if rule.pattern.matches(route.canonical)), None)
            assert first is not None or all(rule.deny for rule in each)
            assert first is None or not first.deny
        assert view.tools[route.exposed] is route
        assert view.tools[route.canonical].canonical == route.canonical
    shown = listed(view)
    assert len(set(shown)) == len(shown)
    assert all(name in view.tools for name in shown)
