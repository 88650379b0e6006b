"""Hostile schemas and arguments: each is checked or rejected in bounded time."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from random import Random
from time import process_time
from typing import Any

import pytest

from gateway.catalogue.schema import InvalidSchema, compile_check, encode_bounded
from gateway.errors import Fault, Kind

from .measuring import MIB, check_error, seconds


def test_threat_21_catastrophic_pattern_runs_in_linear_time() -> None:
    check = compile_check({"properties": {"a": {"pattern": "^(a+)+$"}}})
    start = process_time()
    with pytest.raises(Fault):
        check({"a": "a" * 30 + "!"})
    assert process_time() - start < 0.005


@pytest.mark.parametrize("pattern", ["^[01]*1[01]{900}c", "[01]*1[01]{15}c", "^(?:[01]{3}1|[01]{5}1|[01]{40}1)*c"])
def test_threat_21_expensive_pattern_is_not_run_on_long_text(pattern: str) -> None:
    text = f"{Random(1).getrandbits(MIB):b}"
    assert seconds({"properties": {"a": {"pattern": pattern}}}, {"a": text}) < 0.5
    assert seconds({"patternProperties": {pattern: {}}}, {text: 1}) < 0.5


def _exponential_schema(times: int) -> dict[str, Any]:
    defs: dict[str, Any] = {f"a{i}": {"allOf": [{"$ref": f"#/$defs/a{i + 1}"}] * 2} for i in range(times)}
    return {"$ref": "#/$defs/a0", "$defs": defs | {f"a{times}": {"type": "object"}}}


@pytest.mark.parametrize("times", [20, 25, 31, 60])
def test_threat_21_exponential_all_of_is_rejected_before_compilation(times: int) -> None:
    with pytest.raises(InvalidSchema):
        compile_check(_exponential_schema(times))


def test_threat_21_nested_unevaluated_properties_are_rejected() -> None:
    schema: dict[str, Any] = {"properties": {"a": {}}}
    for _ in range(20):
        schema = {"unevaluatedProperties": False, "allOf": [schema]}
    with pytest.raises(InvalidSchema):
        compile_check(schema)


def test_threat_21_exponential_schema_below_the_root_is_not_evaluated() -> None:
    exponential = _exponential_schema(25)
    schema = {"$defs": exponential["$defs"], "properties": {"a": {"$ref": "#/$defs/a0"}}}
    compile_check(schema)({})
    assert check_error(schema, {"a": {}}).kind is Kind.TOO_LARGE


def test_threat_21_deep_schema_is_rejected() -> None:
    schema: dict[str, Any] = {}
    for _ in range(40):
        schema = {"not": schema}
    with pytest.raises(InvalidSchema, match="deep"):
        compile_check(schema)
    for _ in range(100_000):
        schema = {"x": schema}
    with pytest.raises(InvalidSchema, match="deep"):
        encode_bounded(schema)


def test_threat_21_large_schema_is_rejected() -> None:
    with pytest.raises(InvalidSchema, match="bytes"):
        compile_check({"description": "x" * 70_000})
    with pytest.raises(InvalidSchema, match="subschemas"):
        compile_check({"anyOf": [{}] * 2_001})
    shared: dict[str, Any] = {}
    for _ in range(30):
        shared = {"allOf": [shared, shared]}
    with pytest.raises(InvalidSchema):
        compile_check(shared)


@pytest.fixture
def canary() -> Iterator[tuple[str, list[str]]]:
    """A server that records the requests it receives."""
    requests: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requests.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", requests
    server.shutdown()
    thread.join()
    server.server_close()


def test_threat_21_remote_reference_is_never_fetched(canary: tuple[str, list[str]], tmp_path: Any) -> None:
    address, requests = canary
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
        with pytest.raises(InvalidSchema):
            compile_check(schema)
    # An `$id` is only an identifier and is not fetched.
    compile_check({"$id": f"{address}/root", "$ref": "#/$defs/a", "$defs": {"a": {}}})({})
    assert requests == []


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
def test_threat_22_one_mebibyte_of_arguments_is_checked_or_rejected_in_bounded_time(items: Any, value: Any) -> None:
    tree = {"uniqueItems": True, "items": {"$ref": "#/$defs/tree"}}
    assert seconds({"properties": {"a": items}, "$defs": {"tree": tree}}, {"a": value}) < 0.5


def test_threat_22_large_arguments_of_a_plain_schema_are_still_explained() -> None:
    schema = {"properties": {"a": {"items": {"type": "integer"}}}}
    assert check_error(schema, {"a": [1] * 100_000 + ["x"]}).details["validation_path"] == "input.a.100000"


def test_threat_22_long_text_is_checked_for_its_type_but_not_its_pattern() -> None:
    schema = {"properties": {"a": {"type": "array", "items": {"type": "string", "pattern": "^[a-z]{1,200}$"}}}}
    compile_check(schema)({"a": ["A" * 50] * 10_000})
    assert check_error(schema, {"a": ["A" * 50]}).details["validation_rule"] == "pattern"
    assert check_error(schema, {"a": ["A" * 50] * 10_000 + [7]}).details["validation_rule"] == "type"


def test_threat_22_one_mebibyte_of_base64_is_matched_against_its_pattern() -> None:
    schema = {"properties": {"data": {"pattern": "^[A-Za-z0-9+/]*={0,2}$"}}}
    compile_check(schema)({"data": "QUJD" * (MIB // 4)})
    assert check_error(schema, {"data": "QUJD" * (MIB // 4) + "!"}).details["validation_rule"] == "pattern"
