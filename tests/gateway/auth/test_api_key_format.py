"""The format of API keys and the checksum that detects typos."""

import string

import pytest

from gateway.auth.api_keys import format_key, new_id, new_secret, parse_key

ID, SECRET = "abc123abc123", "s" * 43
KEY = format_key(ID, SECRET)


def test_parse_returns_the_formatted_id_and_secret() -> None:
    for _ in range(100):
        keyid, secret = new_id(), new_secret()
        assert parse_key(format_key(keyid, secret)) == (keyid, secret)


def test_format_matches_keys_issued_earlier() -> None:
    assert f"gth_{ID}_{SECRET}_1fENWp" == KEY


def test_any_single_wrong_character_is_detected() -> None:
    for at, right in enumerate(KEY):
        for wrong in string.ascii_letters + string.digits + "_- é":
            assert wrong == right or parse_key(KEY[:at] + wrong + KEY[at + 1 :]) is None


@pytest.mark.parametrize("text", ["", "gth_", KEY[:-1], KEY + "x", KEY + "\n", " " + KEY, KEY.upper(), KEY[4:]])
def test_text_that_is_not_a_complete_key_is_rejected(text: str) -> None:
    assert parse_key(text) is None
