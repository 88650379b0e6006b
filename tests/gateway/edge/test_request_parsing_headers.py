"""Headers as text."""

from gateway.edge.headers import fold, repeated_routing_header


def test_names_are_lower_case_and_values_stripped() -> None:
    assert fold([(b"Content-Type", b" application/json \t"), (b"x-a", b"\xe9")]) == {
        "content-type": "application/json",
        "x-a": "é",
    }


def test_two_credentials_do_not_pass_for_one() -> None:
    raw = [(b"authorization", b"Bearer a"), (b"accept", b"x"), (b"authorization", b"Bearer b")]
    assert fold(raw) == {"authorization": "Bearer a, Bearer b", "accept": "x"}


def test_a_routing_header_sent_twice_is_named() -> None:
    raw = [(b"mcp-name", b"a"), (b"Mcp-Name", b"a"), (b"accept", b"x")]
    assert repeated_routing_header(raw, fold(raw)) == "mcp-name"


def test_another_header_may_come_twice() -> None:
    raw = [(b"accept", b"a"), (b"accept", b"b"), (b"mcp-name", b"x")]
    assert repeated_routing_header(raw, fold(raw)) is None
    assert fold(raw)["accept"] == "a, b"


def test_names_without_number_are_folded_but_not_kept() -> None:
    for number in range(2000):
        assert fold([(b"x-%d" % number, b"v")]) == {f"x-{number}": "v"}
    assert fold([(b"x-1999", b"v")]) == {"x-1999": "v"}
