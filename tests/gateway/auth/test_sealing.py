"""Sealed values in the database."""

from gateway.auth.sealing import Sealer

VALUE = {"refresh_token": "r1"}


def test_sealed_value_opens_with_its_key_and_context_only() -> None:
    sealer = Sealer(b"k" * 32)
    sealed = sealer.seal(VALUE, "account 1")
    assert "r1" not in sealed
    assert sealer.open(sealed, "account 1") == VALUE
    assert sealer.open(sealed, "account 2") is None
    assert Sealer(b"j" * 32).open(sealed, "account 1") is None


def test_changed_or_foreign_text_does_not_open() -> None:
    sealer = Sealer(b"k" * 32)
    sealed = sealer.seal(VALUE)
    for text in ("", "AAAA", "not base64!", sealed[:-4], "AAAA" + sealed[4:]):
        assert sealer.open(text) is None


def test_value_sealed_with_a_token_opens_with_the_same_token_and_purpose_only() -> None:
    sealed = Sealer.from_token("sign-in", "state-1").seal(VALUE)
    assert Sealer.from_token("sign-in", "state-1").open(sealed) == VALUE
    assert Sealer.from_token("sign-in", "state-2").open(sealed) is None
    assert Sealer.from_token("other", "state-1").open(sealed) is None
