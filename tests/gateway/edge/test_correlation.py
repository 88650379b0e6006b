"""Correlation ids and trace context."""

import multiprocessing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.contract.trace_position import HTTP_TRACEPARENT
from gateway.edge.correlation import correlation_id, new_id, trace_context

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"


def test_correlation_id_is_the_first_valid_candidate() -> None:
    headers = {"x-correlation-id": "header", "x-request-id": "request"}
    trace = {"traceparent": PARENT}
    assert correlation_id(headers, {"correlationId": "meta"}, trace, "argument") == "meta"
    assert correlation_id(headers, {"correlationId": 7}, trace, "argument") == "argument"
    assert correlation_id(headers, {}, trace, {"not": "text"}) == "header"
    assert correlation_id({**headers, "x-correlation-id": "no good"}, None, trace) == "request"
    assert correlation_id({}, None, trace) == TRACE
    assert len(correlation_id({})) == 16


@pytest.mark.parametrize("bad", ["", "a" * 65, "a\r\nSet-Cookie: x", "a\n", "a\x00", "naïve", "a b", "９", "a" * 9000])
def test_threat_27_invalid_id_is_replaced(bad: str) -> None:
    fresh = correlation_id({"x-correlation-id": bad, "x-request-id": bad}, {"correlationId": bad}, None, bad)
    assert fresh != bad
    assert len(fresh) == 16


@given(st.text())
def test_threat_27_id_always_consists_of_allowed_characters(text: str) -> None:
    found = correlation_id({"x-request-id": text})
    assert 1 <= len(found) <= 64
    assert found.isascii()
    assert found.replace(".", "").replace("_", "").replace("-", "").isalnum() or set(found) <= set("._-")


def test_new_ids_do_not_repeat() -> None:
    assert len({new_id() for _ in range(100_000)}) == 100_000


def test_forked_process_generates_different_ids() -> None:
    with multiprocessing.get_context("fork").Pool(2) as pool:
        batches = pool.map(_some_ids, range(8), chunksize=1)
    ids = [one for batch in [*batches, _some_ids(0)] for one in batch]
    assert len(set(ids)) == len(ids)


def _some_ids(_: int) -> list[str]:
    return [new_id() for _ in range(1000)]


def test_trace_context_in_meta_replaces_the_headers_completely() -> None:
    headers = {"traceparent": PARENT, "tracestate": "a=header", "baggage": "k=header"}
    other = PARENT.replace(TRACE, "1" * 32)
    assert trace_context(headers) == headers
    assert trace_context(headers, {"traceparent": other}) == {
        "traceparent": other, "baggage": "k=header", HTTP_TRACEPARENT: PARENT,
    }  # fmt: skip
    assert HTTP_TRACEPARENT not in trace_context(headers, {"traceparent": PARENT})
    assert HTTP_TRACEPARENT not in trace_context({"traceparent": "bad"}, {"traceparent": other})
    assert trace_context(headers, {"traceparent": "bad", "tracestate": "b=2"}) == headers
    assert trace_context({"tracestate": "a=1"}) == {}


@pytest.mark.parametrize(
    ("parent", "is_valid"),
    [
        (PARENT, True),
        (f"cc-{TRACE}-b7ad6b7169203331-01", True),
        (f"cc-{TRACE}-b7ad6b7169203331-01-what-the-future-holds", True),
        (f"{PARENT}-extra", False),
        (f"cc-{TRACE}-b7ad6b7169203331-01.extra", False),
        (f"ff-{TRACE}-b7ad6b7169203331-01", False),
        (PARENT.upper(), False),
        (f"00-{'0' * 32}-b7ad6b7169203331-01", False),
        (f"00-{TRACE}-{'0' * 16}-01", False),
        (PARENT[:-1], False),
        (f" {PARENT}", False),
        (f"{PARENT}\n", False),
        (f"cc-{TRACE}-b7ad6b7169203331-01-\r\nX: y", False),
        (7, False),
        (None, False),
    ],
)
def test_threat_27_invalid_traceparent_is_dropped(parent: object, is_valid: bool) -> None:
    assert trace_context({}, {"traceparent": parent}) == ({"traceparent": parent} if is_valid else {})


@pytest.mark.parametrize(
    ("state", "is_valid"),
    [
        ("foo=1,bar=2", True),
        ("foo=1 , \tbar=2,,", True),
        ("fw529a3039@dt=FfAAAaa==".replace("==", ""), True),
        ("foo=" + "v" * 256, True),
        ("", False),
        (",", False),
        ("foo", False),
        ("foo=", False),
        ("Foo=1", False),
        ("foo=1,foo=2", False),
        ("foo=1=2", False),
        ("foo=1\r\nX: y", False),
        ("foo=" + "v" * 257, False),
        (",".join(f"k{n}=1" for n in range(33)), False),
        ("foo=é", False),
    ],
)
def test_threat_27_invalid_tracestate_is_dropped(state: str, is_valid: bool) -> None:
    assert ("tracestate" in trace_context({"traceparent": PARENT, "tracestate": state})) is is_valid


@pytest.mark.parametrize(
    ("baggage", "is_valid"),
    [
        ("userId=alice", True),
        ("k1 = v1;p;q=2 , k2=%20", True),
        ("k=", True),
        ("k", False),
        ("k=a b", False),
        ('k="v"', False),
        ("k=v\r\nX: y", False),
        ("k=v;", False),
        ("", False),
        ("k=" + "v" * 8192, False),
        (",".join(["k=v"] * 65), False),
    ],
)
def test_threat_27_invalid_baggage_is_dropped(baggage: str, is_valid: bool) -> None:
    assert trace_context({"baggage": baggage}) == ({"baggage": baggage} if is_valid else {})
