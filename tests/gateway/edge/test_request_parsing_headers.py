"""Folding of request headers, and detection of duplicate routing headers."""

from gateway.edge.request_parsing import duplicate_routing_header, fold_headers


def test_header_names_are_lower_cased_and_values_stripped() -> None:
    assert fold_headers([(b"Content-Type", b" application/json \t"), (b"x-a", b"\xe9")]) == {
        "content-type": "application/json",
        "x-a": "é",
    }


def test_two_authorization_headers_are_joined() -> None:
    raw = [(b"authorization", b"Bearer a"), (b"accept", b"x"), (b"authorization", b"Bearer b")]
    assert fold_headers(raw) == {"authorization": "Bearer a, Bearer b", "accept": "x"}


def test_duplicate_routing_header_is_reported() -> None:
    raw = [(b"mcp-name", b"a"), (b"Mcp-Name", b"a"), (b"accept", b"x")]
    assert duplicate_routing_header(raw, fold_headers(raw)) == "mcp-name"


def test_other_headers_may_be_repeated() -> None:
    raw = [(b"accept", b"a"), (b"accept", b"b"), (b"mcp-name", b"x")]
    assert duplicate_routing_header(raw, fold_headers(raw)) is None
    assert fold_headers(raw)["accept"] == "a, b"


def test_any_number_of_header_names_is_folded() -> None:
    for number in range(2000):
        assert fold_headers([(b"x-%d" % number, b"v")]) == {f"x-{number}": "v"}
    assert fold_headers([(b"x-1999", b"v")]) == {"x-1999": "v"}
