"""Schemas: what is compiled, what is refused, what a bad argument is told, and that none of it can be made slow."""

import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from random import Random
from time import process_time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.catalogue.schema import BadSchema, bound, compile_check
from gateway.errors import Fault, Kind

MIB = 1 << 20


def refusal(schema: dict[str, Any], arguments: dict[str, Any]) -> Fault:
    with pytest.raises(Fault) as caught:
        compile_check(schema)(arguments)
    return caught.value


def seconds(schema: dict[str, Any], arguments: dict[str, Any]) -> float:
    """CPU for one check, whatever it says."""
    check = compile_check(schema)
    start = process_time()
    with suppress(Fault):
        check(arguments)
    return process_time() - start


@pytest.mark.parametrize(
    ("schema", "arguments", "path", "rule", "words"),
    [
        ({"required": ["scriptType"]}, {}, "input.scriptType", "required", "is required"),
        ({"properties": {"a": {"type": "string"}}}, {"a": 1}, "input.a", "type", "must be string, not number"),
        (
            {"properties": {"a": {"properties": {"b": {"enum": ["x", "y"]}}}}},
            {"a": {"b": "z"}},
            "input.a.b",
            "enum",
            "must be one of x or y",
        ),
        ({"properties": {"a": {"items": {"minimum": 3}}}}, {"a": [4, 1]}, "input.a.1", "minimum", "must be at least 3"),
        ({"properties": {"a": {"maxLength": 2}}}, {"a": "abc"}, "input.a", "maxLength", "at most 2 characters"),
        ({"properties": {"a": {"pattern": "^x"}}}, {"a": "b"}, "input.a", "pattern", "must match the pattern ^x"),
        ({"properties": {"a": {"const": 7}}}, {"a": 8}, "input.a", "const", "must be 7"),
        ({"properties": {"a": {"enum": []}}}, {"a": 8}, "input.a", "enum", "must be one of nothing"),
        ({"properties": {"a": False}}, {"a": 8}, "input.a", "falseSchema", "is not allowed"),
        ({"propertyNames": {"maxLength": 2}}, {"abc": 1}, "input.abc", "propertyNames", "at most 2 characters"),
        (
            {"anyOf": [{"required": ["scriptPath"]}, {"required": ["scriptId"]}]},
            {},
            "input",
            "anyOf",
            "one of scriptPath or scriptId is required",
        ),
        (
            {"oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
            {"a": 1, "b": 1},
            "input",
            "oneOf",
            "more than one",
        ),
        (
            {"properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}},
            {"a": 1},
            "input.a",
            "type",
            "must be string or null, not number",
        ),
    ],
)
def test_a_refusal_names_the_place_and_the_rule(
    schema: dict[str, Any], arguments: dict[str, Any], path: str, rule: str, words: str
) -> None:
    fault = refusal(schema, arguments)
    assert fault.kind is Kind.INVALID_INPUT
    assert fault.details == {"validation_path": path, "validation_rule": rule}
    assert words in fault.message


def test_an_unknown_property_is_named_with_the_nearest_known_one() -> None:
    fault = refusal({"properties": {"scriptType": {}}, "additionalProperties": False}, {"scripttype": 1})
    assert fault.details["validation_path"] == "input.scripttype"
    assert fault.suggested_fix is not None
    assert "scriptType" in fault.suggested_fix


def test_of_tagged_forms_the_one_that_was_meant_is_explained() -> None:
    def form(action: str, needs: str) -> dict[str, Any]:
        return {"properties": {"action": {"const": action}}, "required": ["action", needs]}

    schema = {"oneOf": [form("open", "path"), form("close", "handle")]}
    assert refusal(schema, {"action": "open"}).details["validation_path"] == "input.path"
    assert "must be one of open or close" in refusal(schema, {"action": "x", "path": 1, "handle": 1}).message


def test_a_missing_property_is_said_before_an_either_or() -> None:
    schema = {"anyOf": [{"required": ["a"]}, {"required": ["b"]}], "required": ["c"]}
    assert refusal(schema, {}).details["validation_path"] == "input.c"


def test_the_prefix_is_the_callers() -> None:
    with pytest.raises(Fault) as caught:
        compile_check({"required": ["a"]}, prefix="arguments")({})
    assert caught.value.details["validation_path"] == "arguments.a"


@pytest.mark.parametrize(
    ("schema", "key", "value"),
    [
        ({"properties": {"a": {"type": "integer"}}}, "a", "s" * 5000),
        ({"properties": {"a": {"enum": ["x"]}}}, "a", "s" * 5000),
        ({"additionalProperties": False}, "k" * 5000, 1),
        ({"propertyNames": {"maxLength": 9}}, "k" * 5000, 1),
        ({"additionalProperties": {"type": "string"}}, "k" * 5000, 1),
        ({"properties": {"a": {"not": {"type": "string"}}}}, "a", "s" * 5000),
    ],
)
def test_a_message_never_repeats_what_was_sent_at_length(schema: dict[str, Any], key: str, value: Any) -> None:
    fault = refusal(schema, {key: value})
    assert len(fault.message) < 250
    assert "s" * 81 not in fault.message
    assert "k" * 81 not in fault.message + str(fault.details) + str(fault.suggested_fix)


def test_local_references_anchors_and_dynamic_references_work() -> None:
    tree = {
        "$id": "tree",
        "$dynamicAnchor": "node",
        "properties": {"value": {"$ref": "#count"}, "children": {"items": {"$dynamicRef": "#node"}}},
        "$defs": {"count": {"$anchor": "count", "type": "integer"}},
    }
    schema = {
        "properties": {"tree": {"$ref": "tree"}, "n": {"$ref": "#/$defs/n"}},
        "$defs": {"t": tree, "n": {"minimum": 1}},
    }
    compile_check(schema)({"tree": {"value": 1, "children": [{"value": 2}]}, "n": 1})
    assert (
        refusal(schema, {"tree": {"children": [{"value": "x"}]}}).details["validation_path"]
        == "input.tree.children.0.value"
    )
    assert refusal(schema, {"n": 0}).details["validation_path"] == "input.n"


@pytest.mark.parametrize(
    ("dialect", "accepted"),
    [
        ("http://json-schema.org/draft-07/schema#", True),
        ("https://json-schema.org/draft/2019-09/schema", True),
        ("https://json-schema.org/draft/2020-12/schema", True),
        ("http://json-schema.org/draft-04/schema#", False),
        ("https://example.test/own", False),
        (7, False),
    ],
)
def test_three_dialects_are_honoured_and_no_other(dialect: Any, accepted: bool) -> None:
    schema = {"$schema": dialect, "type": "object"}
    if accepted:
        compile_check(schema)({})
    else:
        with pytest.raises(BadSchema):
            compile_check(schema)


def test_a_dialect_changes_what_a_keyword_means() -> None:
    pair = {"items": [{"type": "string"}, {"type": "integer"}]}
    draft7 = {"$schema": "http://json-schema.org/draft-07/schema#", "properties": {"a": pair}}
    assert refusal(draft7, {"a": ["x", "y"]}).details["validation_path"] == "input.a.1"


@pytest.mark.parametrize(
    "schema",
    [
        True,
        [],
        "x",
        None,
        {"type": "no-such-type"},
        {"$ref": "#/nowhere"},
        {"properties": 7},
        {"$ref": "#"},
        {"a": object()},
    ],
)
def test_what_is_no_schema_is_refused_with_a_reason(schema: Any) -> None:
    with pytest.raises(BadSchema) as caught:
        compile_check(schema)
    assert str(caught.value)


def test_a_look_around_pattern_is_left_to_the_backend_and_all_else_is_checked() -> None:
    schema = {
        "properties": {
            "password": {"type": "string", "pattern": "^(?=.*[A-Z]).+$", "maxLength": 5},
            "plain": {"pattern": "^[a-z]+$"},
            "never": {"not": {"pattern": "^(?!x)"}},
            "one": {"oneOf": [{"pattern": "(a)\\1"}, {"maxLength": 3}]},
        },
        "patternProperties": {"^(?!x-)": {"type": "string"}},
        "additionalProperties": False,
    }
    check = compile_check(schema)
    check({"password": "abc", "plain": "x", "never": "x", "one": "abc", "x-other": 1})
    assert refusal(schema, {"password": "abcdef"}).details["validation_rule"] == "maxLength"
    assert refusal(schema, {"plain": "X"}).details["validation_rule"] == "pattern"


def test_the_same_schema_is_compiled_once() -> None:
    assert compile_check({"type": "object", "title": "once"}) is compile_check({"type": "object", "title": "once"})


def test_a_check_keeps_its_own_copy_of_the_schema() -> None:
    schema: dict[str, Any] = {"required": ["a"], "properties": {"a": {}}, "additionalProperties": False}
    check = compile_check(schema)
    schema["properties"].clear()
    with pytest.raises(Fault) as caught:
        check({"a": 1, "A": 2})
    assert caught.value.details["validation_path"] == "input.A"


def test_arguments_that_are_not_json_are_refused_not_a_defect() -> None:
    assert refusal({"properties": {"a": {"type": "string"}}}, {"a": object()}).kind is Kind.INVALID_INPUT


def test_recursive_filters_of_ordinary_depth_are_checked() -> None:
    def group(word: str) -> dict[str, Any]:
        return {
            "properties": {word: {"items": {"$ref": "#/$defs/f"}}},
            "required": [word],
            "additionalProperties": False,
        }

    leaf = {"properties": {"field": {"type": "string"}}, "required": ["field"], "additionalProperties": False}
    schema = {
        "$defs": {"f": {"anyOf": [group("and"), group("or"), leaf]}},
        "properties": {"filter": {"$ref": "#/$defs/f"}},
    }
    value: dict[str, Any] = {"field": "x"}
    for depth in range(12):
        value = {"and" if depth % 2 else "or": [value, {"field": "y"}]}
    compile_check(schema)({"filter": value})


# ---- threat 21: schemas that a backend made to hurt ---------------------------------------------------------------


def test_threat_21_a_hostile_pattern_takes_no_time() -> None:
    check = compile_check({"properties": {"a": {"pattern": "^(a+)+$"}}})
    start = process_time()
    with pytest.raises(Fault):
        check({"a": "a" * 30 + "!"})
    assert process_time() - start < 0.005


@pytest.mark.parametrize("pattern", ["^[01]*1[01]{900}c", "[01]*1[01]{15}c", "^(?:[01]{3}1|[01]{5}1|[01]{40}1)*c"])
def test_threat_21_a_pattern_that_defeats_the_automaton_is_not_run_on_long_text(pattern: str) -> None:
    text = f"{Random(1).getrandbits(MIB):b}"
    assert seconds({"properties": {"a": {"pattern": pattern}}}, {"a": text}) < 0.5
    assert seconds({"patternProperties": {pattern: {}}}, {text: 1}) < 0.5


def _laughs(times: int) -> dict[str, Any]:
    defs: dict[str, Any] = {f"a{i}": {"allOf": [{"$ref": f"#/$defs/a{i + 1}"}] * 2} for i in range(times)}
    return {"$ref": "#/$defs/a0", "$defs": defs | {f"a{times}": {"type": "object"}}}


@pytest.mark.parametrize("times", [20, 25, 31, 60])
def test_threat_21_allof_laughs_are_refused_before_they_are_compiled(times: int) -> None:
    with pytest.raises(BadSchema):
        compile_check(_laughs(times))


def test_threat_21_nested_unevaluated_properties_are_refused() -> None:
    schema: dict[str, Any] = {"properties": {"a": {}}}
    for _ in range(20):
        schema = {"unevaluatedProperties": False, "allOf": [schema]}
    with pytest.raises(BadSchema):
        compile_check(schema)


def test_threat_21_laughs_below_the_root_are_not_evaluated() -> None:
    laughs = _laughs(25)
    schema = {"$defs": laughs["$defs"], "properties": {"a": {"$ref": "#/$defs/a0"}}}
    compile_check(schema)({})
    assert refusal(schema, {"a": {}}).kind is Kind.TOO_LARGE


def test_threat_21_a_deep_schema_is_refused() -> None:
    schema: dict[str, Any] = {}
    for _ in range(40):
        schema = {"not": schema}
    with pytest.raises(BadSchema, match="deep"):
        compile_check(schema)
    for _ in range(100_000):
        schema = {"x": schema}
    with pytest.raises(BadSchema, match="deep"):
        bound(schema)


def test_threat_21_a_large_schema_is_refused() -> None:
    with pytest.raises(BadSchema, match="bytes"):
        compile_check({"description": "x" * 70_000})
    with pytest.raises(BadSchema, match="subschemas"):
        compile_check({"anyOf": [{}] * 2_001})
    shared: dict[str, Any] = {}
    for _ in range(30):
        shared = {"allOf": [shared, shared]}
    with pytest.raises(BadSchema):
        compile_check(shared)


@pytest.fixture
def canary() -> Iterator[tuple[str, list[str]]]:
    """A server that writes down who asks."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    thread.join()
    server.server_close()


def test_threat_21_a_remote_reference_is_never_fetched(canary: tuple[str, list[str]], tmp_path: Any) -> None:
    address, asked = canary
    (tmp_path / "s.json").write_text("{}")
    for schema in (
        {"$ref": f"{address}/s.json"},
        {"properties": {"a": {"$ref": f"{address}/s.json#/x"}}},
        {"$id": f"{address}/root", "$ref": "s.json"},
        {"$dynamicRef": f"{address}/s.json#x"},
        {"$schema": f"{address}/dialect"},
        {"$defs": {"a": {"$id": "urn:a", "$schema": f"{address}/dialect"}}, "$ref": "urn:a"},
        {"$ref": f"file://{tmp_path}/s.json"},
        {"$ref": "http://[bad"},
        {"$defs": {"unused": {"$ref": f"{address}/s.json"}}},
    ):
        with pytest.raises(BadSchema):
            compile_check(schema)
    # Only said to be there: an address that is a name, and nothing more.
    compile_check({"$id": f"{address}/root", "$ref": "#/$defs/a", "$defs": {"a": {}}})({})
    assert asked == []


# ---- threat 22: arguments that make a sound schema slow -----------------------------------------------------------


_MEBIBYTES: list[Any] = [
    ({"anyOf": [{"items": {"type": "string"}, "title": str(n)} for n in range(10)]}, [1] * (MIB // 2)),
    ({"items": {"type": "string"}}, [1] * (MIB // 2)),
    ({"items": {"anyOf": [{"const": n} for n in range(1_000)]}}, [999] * 200_000),
    ({"items": {"enum": [{"k": n} for n in range(2_000)]}}, [{"k": 1_999}] * 100_000),
    ({"items": {"enum": [n + 0.5 for n in range(2_000)]}}, [1_999.5] * 10_000),
    ({"items": {"enum": [*range(2_000), "x"]}}, [1_999] * 100_000),
    ({"items": {"multipleOf": 1e-300}}, [1e300] * 100_000),
    ({"items": {"maximum": 1}}, [-(10**4_000)] * 250),
    ({"uniqueItems": True}, list(range(150_000))),
    ({"uniqueItems": True}, [{"a": n} for n in range(80_000)]),
    ({"contains": {"const": -1}}, list(range(150_000))),
    ({"patternProperties": {f"^a{n}$": {} for n in range(90)}}, {f"k{n}": 0 for n in range(80_000)}),
    ({"items": {"pattern": "[01]*1[01]{500}c"}}, ["0110100110010110" * 4] * 16_000),
    ({"$ref": "#/$defs/tree"}, [[[[[[1] * 50_000]]]]]),
]


@pytest.mark.parametrize(("items", "value"), _MEBIBYTES, ids=range(len(_MEBIBYTES)))
def test_threat_22_a_mebibyte_of_arguments_is_checked_or_refused_in_bounded_time(items: Any, value: Any) -> None:
    tree = {"uniqueItems": True, "items": {"$ref": "#/$defs/tree"}}
    assert seconds({"properties": {"a": items}, "$defs": {"tree": tree}}, {"a": value}) < 0.5


def test_threat_22_large_arguments_of_a_plain_schema_are_still_explained() -> None:
    schema = {"properties": {"a": {"items": {"type": "integer"}}}}
    assert refusal(schema, {"a": [1] * 100_000 + ["x"]}).details["validation_path"] == "input.a.100000"


def test_threat_22_long_text_is_checked_without_its_pattern_but_not_without_its_type() -> None:
    schema = {"properties": {"a": {"type": "array", "items": {"type": "string", "pattern": "^[a-z]{1,200}$"}}}}
    compile_check(schema)({"a": ["A" * 50] * 10_000})
    assert refusal(schema, {"a": ["A" * 50]}).details["validation_rule"] == "pattern"
    assert refusal(schema, {"a": ["A" * 50] * 10_000 + [7]}).details["validation_rule"] == "type"


def test_threat_22_base64_of_a_mebibyte_is_matched_against_its_pattern() -> None:
    schema = {"properties": {"data": {"pattern": "^[A-Za-z0-9+/]*={0,2}$"}}}
    compile_check(schema)({"data": "QUJD" * (MIB // 4)})
    assert refusal(schema, {"data": "QUJD" * (MIB // 4) + "!"}).details["validation_rule"] == "pattern"


# ---- anything at all ----------------------------------------------------------------------------------------------

_KEYWORDS = [
    "type",
    "properties",
    "required",
    "items",
    "prefixItems",
    "contains",
    "minContains",
    "maxContains",
    "enum",
    "const",
    "pattern",
    "patternProperties",
    "additionalProperties",
    "unevaluatedProperties",
    "unevaluatedItems",
    "uniqueItems",
    "propertyNames",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
    "$ref",
    "$defs",
    "$id",
    "$anchor",
    "$dynamicAnchor",
    "$dynamicRef",
    "$schema",
    "multipleOf",
    "minimum",
    "maxLength",
    "dependentSchemas",
    "dependentRequired",
    "format",
    "definitions",
]
_WORDS = st.sampled_from(
    ["object", "string", "#", "#/$defs/a", "a", "^a", "(?=a)", "[", "urn:x", "http://x.test/y", ""]
)
_LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5) | _WORDS
_JSON = st.recursive(
    _LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(_KEYWORDS) | st.sampled_from("ab"), inner, max_size=5)
    ),
    max_leaves=25,
)


@settings(max_examples=400, deadline=2_000, suppress_health_check=[HealthCheck.too_slow])
@given(_JSON, st.dictionaries(st.sampled_from("ab"), _JSON, max_size=3))
def test_any_json_value_compiles_or_is_a_bad_schema(schema: Any, arguments: dict[str, Any]) -> None:
    try:
        check = compile_check(schema)
    except BadSchema:
        return
    # Anything but a fault fails the test.
    with suppress(Fault):
        check(arguments)
