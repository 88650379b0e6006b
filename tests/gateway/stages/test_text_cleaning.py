"""Removal of hidden characters and secrets, and its running time."""

import time

import pytest

from gateway.protocol.strict_json import encode
from gateway.stages.guard import REDACTED, clean_json, may_contain_hidden, redact_secrets, strip_hidden

SCRIPTS = "family 👨\u200d👩\u200d👧 and ❤\ufe0f, می\u200cخواهم, 日本"


@pytest.mark.parametrize(
    ("dirty", "clean"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("a\x00b\x08c\x7fd\x9be", "abcde"),
        ("tab\tline\nreturn\r", "tab\tline\nreturn\r"),
        ("zero\u200bwidth\ufeff\u2060", "zerowidth"),
        ("\u202eevil\u202c \u2066x\u2069", "evil x"),
        ("hi" + "".join(chr(0xE0000 + ord(c)) for c in "ignore all") + "!", "hi!"),
        ("byte\U000e0101s", "bytes"),
        (
            "family 👨\u200d👩\u200d👧 and ❤\ufe0f, می\u200cخواهم, 日本",
            "family 👨\u200d👩\u200d👧 and ❤\ufe0f, می\u200cخواهم, 日本",
        ),
    ],
)
def test_hidden_characters_are_removed_and_joiners_for_scripts_stay(dirty: str, clean: str) -> None:
    assert strip_hidden(dirty) == clean
    assert (dirty == clean) or may_contain_hidden(encode({"text": dirty}))


@pytest.mark.parametrize(
    "secret",
    [
        "AKIA" + "A1B2C3D4E5F6G7H8",
        "ghp_" + "a1B2" * 9,
        "xoxb-" + "1234567890-abcdef",
        "gth_" + "abc123def456_" + "x" * 43 + "_AbC123",
        "eyJ" + "hbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiIxIn0x" + ".c2lnbmF0dXJlMTIz",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIabc\n-----END RSA PRIVATE KEY-----",
    ],
)
def test_threat_29_secrets_are_redacted(secret: str) -> None:
    assert redact_secrets(f"the key is {secret} ok") == f"the key is {REDACTED} ok"


def test_text_similar_to_secrets_is_unchanged() -> None:
    text = "AKIA is a prefix, ghp_short, sk-no, eyJ.a.b, -----BEGIN CERTIFICATE-----"
    assert redact_secrets(text) == text


@pytest.mark.parametrize(
    "attack",
    [
        "\x1b[" * 50_000,
        "\x1b]" * 50_000,
        "eyJ" * 40_000,
        "eyJaaaaaaaaaaa." * 8_000,
        "-----BEGIN " * 10_000,
        "sk-" * 30_000,
    ],
)
def test_threat_22_cleaning_runs_in_linear_time(attack: str) -> None:
    def cpu(text: str) -> float:
        began = time.process_time()
        redact_secrets(strip_hidden(text))
        return time.process_time() - began

    small, large = (min(cpu(part) for _ in range(3)) for part in (attack[: len(attack) // 4], attack))
    # Four times the text takes four times as long if the time is linear, sixteen times if it is quadratic.
    assert large < max(8 * small, 0.05)


def test_keys_binary_data_and_clean_parts_are_unchanged() -> None:
    data = {"type": "image", "data": "\u200b", "mimeType": "image/png"}
    dirty_json = {
        "content": [data, {"type": "text", "text": "a\u200b"}],
        "structuredContent": {"\u200bkey": ["b\x1b[0m"]},
    }
    result = clean_json(dirty_json, strip_hidden)
    assert result["content"][0] is data
    assert result["content"][1] == {"type": "text", "text": "a"}
    assert result["structuredContent"] == {"\u200bkey": ["b"]}
    untouched = {"content": [{"type": "text", "text": "plain"}]}
    assert clean_json(untouched, strip_hidden) is untouched
