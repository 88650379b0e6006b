"""Arguments as approvers see them."""

import json

import pytest

from gateway.approvals.redaction import REDACTED, RedactionRule, show_arguments
from gateway.contract import Caller

ARGUMENTS = json.dumps({"user": {"Password": "p", "name": "n"}, "items": [{"token": "t"}, {"id": 1}], "name": "top"})


@pytest.mark.parametrize(
    ("patterns", "hidden"),
    [
        ((), []),
        (("password",), ["p"]),
        (("*token*",), ["t"]),
        (("user.name",), ["n"]),
        (("name",), ["n", "top"]),
        (("user",), ["p", "n"]),
        (("items.token", "missing"), ["t"]),
    ],
)
def test_matching_arguments_are_hidden_at_any_depth(patterns: tuple[str, ...], hidden: list[str]) -> None:
    shown = show_arguments(ARGUMENTS, patterns)
    values = ["p", "n", "t", "top"]
    assert [each for each in values if f'"{each}"' not in shown.text] == hidden
    assert shown.complete is not bool(hidden)
    assert (REDACTED in shown.text) is bool(hidden)


def test_erased_arguments_are_not_complete() -> None:
    assert not show_arguments(None, ()).complete


@pytest.mark.parametrize("character", ["\u202e", "\u200b", "\x07", "\u2028", "\ufeff", "\u00ad", "\U000e0041"])
def test_characters_that_hide_text_are_shown_as_escapes(character: str) -> None:
    shown = show_arguments(json.dumps({"a": f"x{character}y"}), ())
    assert character not in shown.text
    assert "\\u" in shown.text


def test_readable_text_of_any_language_is_shown_as_it_is() -> None:
    assert "grüße 你好 🙂" in show_arguments(json.dumps({"a": "grüße 你好 🙂"}), ()).text


def test_only_members_of_the_named_groups_see_hidden_arguments() -> None:
    rule = RedactionRule(("a",), frozenset({"security"}))
    assert rule.for_viewer(Caller("t", "bob", groups=frozenset({"platform"}))) == ("a",)
    assert rule.for_viewer(Caller("t", "eve", groups=frozenset({"security"}))) == ()
