import json
import math
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.protocol.strict_json import InvalidJson, decode, digest, encode

CORPUS = Path(__file__).parents[2] / "corpus" / "json"
ACCEPTED = sorted((CORPUS / "accepted").iterdir())
REFUSED = sorted((CORPUS / "refused").iterdir())
NOT_OBJECTS = {"batch_empty", "batch_of_one", "batch_after_blanks", "string", "number", "null", "true"}

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
names = st.text(max_size=6)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(names, values, max_size=3)
fuzzed = settings(deadline=None)


def refusal(body: bytes) -> InvalidJson:
    with pytest.raises(InvalidJson) as caught:
        decode(body)
    return caught.value


def seconds(work: Callable[[], object]) -> float:
    """The minimum CPU time of three runs, which does not depend on other load of the machine."""

    def once() -> float:
        started = process_time()
        work()
        return process_time() - started

    return min(once() for _ in range(3))


# ---- decode


@fuzzed
@given(objects, st.lists(st.tuples(st.integers(0, 400), st.binary(max_size=3)), max_size=3))
@example({"a": 1}, [(6, b',"a":2')])
@example({"a": 0.1}, [(5, b"9" * 400)])
def test_fast_and_slow_decoder_agree(value: dict[str, Any], edits: list[tuple[int, bytes]]) -> None:
    body = encode(value)
    for place, inserted in edits:
        body = body[:place] + inserted + body[place:]
    # A leading blank excludes a body from the fast decoder and changes nothing else.
    assert read_or_refused(body) == read_or_refused(b" " + body)


def read_or_refused(body: bytes) -> object:
    try:
        return decode(body)
    except InvalidJson as exc:
        return exc.code


@pytest.mark.parametrize("file", ACCEPTED, ids=lambda file: file.stem)
def test_accepted_bodies_decode_like_the_standard_library(file: Path) -> None:
    assert decode(file.read_bytes()) == json.loads(file.read_bytes())


@pytest.mark.parametrize("part", ['"k%d":1', '"k%d":{}', '"k%d":[]', '"k%d" : 1'])
def test_body_with_too_many_parts_is_rejected_before_parsing(part: str) -> None:
    body = ("{" + ",".join(part % n for n in range(60_000)) + "}").encode()
    assert (refusal(body).code, "50000" in refusal(body).message) == (-32600, True)


def test_brackets_and_colons_inside_a_string_are_not_counted() -> None:
    text = "{[:" * 30_000
    assert decode(json.dumps({"a": text}).encode()) == {"a": text}


@pytest.mark.parametrize("file", REFUSED, ids=lambda file: file.stem)
def test_rejected_bodies_have_the_matching_error_code(file: Path) -> None:
    assert refusal(file.read_bytes()).code == (-32600 if file.stem in NOT_OBJECTS else -32700)


@fuzzed
@given(objects)
def test_every_object_survives_encoding_and_decoding(value: dict[str, Any]) -> None:
    assert decode(encode(value)) == value
    assert decode(json.dumps(value).encode()) == value


@fuzzed
@given(st.binary() | st.text(alphabet='{}[]",:\\u0dDe19.-+ NaN\n\ud7ff').map(str.encode))
@example(b'{"a":"\\ud800\\u0041"}')
def test_any_bytes_are_decoded_or_rejected(raw: bytes) -> None:
    try:
        value = decode(raw)
    except InvalidJson:
        return
    assert decode(encode(value)) == value


@fuzzed
@given(objects, st.data())
def test_truncated_body_is_rejected(value: dict[str, Any], data: st.DataObject) -> None:
    raw = encode(value)
    assert refusal(raw[: data.draw(st.integers(0, len(raw) - 1))]).code == -32700


@given(st.integers(1, 200), st.sampled_from([b"[", b'{"a":']), st.text('[]{}"\\', max_size=20))
@fuzzed
def test_nesting_deeper_than_64_levels_is_rejected(depth: int, opening: bytes, noise: str) -> None:
    closing = {b"[": b"]", b'{"a":': b"}"}[opening]
    tree = opening * (depth - 1) + b"1" + closing * (depth - 1)
    raw = b'{"noise":%s,"a":%s}' % (encode([noise]), tree)
    if depth <= 64:
        assert decode(raw)["noise"] == [noise]
    else:
        assert "nested" in refusal(raw).message


def test_error_message_never_contains_the_body() -> None:
    for raw in (b'{"a":"s3cret" x}', b'{"s3cret":1,"s3cret":2}', b'{"a":"s3cret\\ud800"}', b's3cret{"a":1}'):
        assert "s3cret" not in refusal(raw).message


def test_threat_15_bodies_that_two_parsers_may_read_differently_are_refused() -> None:
    for raw in (
        b'{"name":"ok","name":"secret"}',
        b'{"name":"ok","n\\u0061me":"secret"}',
        b'\xef\xbb\xbf{"name":"ok"}',
        b'{"name":"\\ud800"}',
        b'{"name":NaN}',
        b'{"name":1e999}',
        '{"name":"ok"}'.encode("utf-16"),
    ):
        assert refusal(raw).code == -32700


def test_threat_15_encoded_body_is_what_was_checked() -> None:
    raw = b'{"method":"tools/call", "params" : {"n\\u0061me":"echo","arguments":{"n":1.50}}}'
    assert encode(decode(raw)) == b'{"method":"tools/call","params":{"name":"echo","arguments":{"n":1.5}}}'


def test_threat_23_deep_and_large_json_is_refused_in_milliseconds() -> None:
    hostile = {
        "nested arrays": b'{"a":' + b"[" * 100_000,
        "nested objects": b'{"a":' * 100_000,
        "nested behind a string": b'{"b":"' + b"x" * 100_000 + b'","a":' + b"[" * 100_000,
        "a closed tree": b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        "a long integer": b'{"a":' + b"9" * 1_000_000 + b"}",
        "a long float": b'{"a":' + b"9" * 1_000_000 + b".0}",
    }
    for name, raw in hostile.items():
        assert refusal(raw).code == -32700, name
        assert seconds(lambda raw=raw: refusal(raw)) < 0.05, name


@pytest.mark.parametrize(
    "filler",
    [b'"\\', b'\\"', b'"', b'"",', b"[]", b"{", b"\\"],
    ids=["quote-backslash", "backslash-quote", "quote", "strings", "arrays", "braces", "backslashes"],
)
def test_threat_23_cost_of_a_hostile_body_is_linear_in_its_size(filler: bytes) -> None:
    def body(size: int) -> bytes:
        return b'{"a":[' + b"[]," * 70 + filler * (size // len(filler))

    small = seconds(lambda: refusal(body(50_000)))
    large = seconds(lambda: refusal(body(400_000)))
    # Eight times the size: quadratic cost would be a factor of 64.
    assert large < 24 * small + 0.01


def test_threat_26_batch_is_rejected_at_constant_cost() -> None:
    ping = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
    for size in (0, 1, 10_000):
        refused = refusal(b"[" + b",".join([ping] * size) + b"]")
        assert refused.code == -32600
        assert "atch" in refused.message
    huge = b"[" + b",".join([ping] * 100_000) + b"]"
    assert seconds(lambda: refusal(huge)) < 0.002


# ---- encode and digest


def test_lone_surrogate_becomes_a_replacement_character() -> None:
    assert json.loads(encode({"a\udc00": ["x\ud800y", {"b": ("\ud800",)}]})) == {
        "a\ufffd": ["x\ufffdy", {"b": ["\ufffd"]}]
    }


def test_adjacent_surrogates_become_their_character() -> None:
    assert json.loads(encode({"a": "\ud83d\ude00", "b": "\ud800"})) == {"a": "😀", "b": "\ufffd"}


def test_keys_that_are_not_strings_are_written_as_json_writes_them() -> None:
    value: dict[Any, Any] = {None: 1, True: 2, 3: 4, 1.5: 5}
    assert json.loads(encode(value)) == {"null": 1, "true": 2, "3": 4, "1.5": 5}


def test_nan_and_infinity_become_null_and_long_integers_are_kept() -> None:
    assert encode([math.nan, math.inf, -math.inf, 2**200]) == b"[null,null,null,%d]" % 2**200


@pytest.mark.parametrize("value", [object(), {"a": [object()]}, {(1, 2): 3}, {"a": 1j}, {"a": "\ud800", "b": object()}])
def test_unsupported_types_raise_type_error(value: Any) -> None:
    with pytest.raises(TypeError):
        encode(value)


def test_recursive_value_or_huge_integer_raises_type_error() -> None:
    endless: list[Any] = []
    endless.append(endless)
    for value in (endless, 10**5000):
        with pytest.raises(TypeError):
            encode(value)


any_text = st.text(st.characters(codec=None, exclude_categories=()))
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | any_text,
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(any_text | st.integers() | st.booleans() | st.none(), inner)
    ),
    max_leaves=15,
)


@fuzzed
@given(anything)
def test_json_like_data_always_encodes_to_standard_json(value: Any) -> None:
    plain = json.loads(encode(value))
    assert json.loads(encode(plain)) == plain


@fuzzed
@given(objects)
def test_the_digest_does_not_depend_on_the_order_of_members(value: dict[str, Any]) -> None:
    backwards = dict(reversed(value.items()))
    assert digest(value) == digest(backwards)
    assert digest(value) != digest({**value, "one more": len(value), "and another": None})


def test_the_digest_is_the_sha_256_of_sorted_compact_json() -> None:
    assert digest({"b": {"d": 1, "c": "é"}, "a": [1.5, None]}) == digest({"a": [1.5, None], "b": {"c": "é", "d": 1}})
    assert digest({}) == "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
