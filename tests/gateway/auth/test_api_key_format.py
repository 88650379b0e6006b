"""How a key is written, and that a slip of the pen is seen in the text alone."""

import string

import pytest

from gateway.auth.api_keys import new_id, new_secret, parse, spell

ID, SECRET = "abc123abc123", "s" * 43
KEY = spell(ID, SECRET)


def test_what_is_spelled_is_read_back() -> None:
    for _ in range(100):
        keyid, secret = new_id(), new_secret()
        assert parse(spell(keyid, secret)) == (keyid, secret)


def test_the_text_is_the_one_that_keys_already_given_out_have() -> None:
    assert f"gth_{ID}_{SECRET}_1fENWp" == KEY


def test_any_one_wrong_character_is_seen() -> None:
    for at, right in enumerate(KEY):
        for wrong in string.ascii_letters + string.digits + "_- é":
            assert wrong == right or parse(KEY[:at] + wrong + KEY[at + 1 :]) is None


@pytest.mark.parametrize("text", ["", "gth_", KEY[:-1], KEY + "x", KEY + "\n", " " + KEY, KEY.upper(), KEY[4:]])
def test_what_is_not_a_whole_key_is_none(text: str) -> None:
    assert parse(text) is None
