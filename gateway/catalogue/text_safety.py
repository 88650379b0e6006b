"""Checks on text that a model reads: hidden characters, confusable names, and instructions to the model."""

import re
import unicodedata
from collections.abc import Iterator
from typing import Any, Final, cast

# A joiner between two emoji and a selector after an emoji are visible, so they do not count as hidden.
_EMOJI: Final = "[\u00a9\u00ae\u203c\u2049\u2100-\u2bff\u3030\u303d\u3297\u3299\ufe0f\U0001f000-\U0001faff]"
_HIDDEN: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]|\r(?!\n)"  # C0 and C1, which includes ANSI escapes; line breaks are allowed
    "|[\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200c\u2060-\u2065\u3164\ufeff\uffa0]"  # no width
    "|[\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f]"  # bidi controls, line and paragraph separators
    "|[\ufff0-\ufffb\U000e0000-\U000e0fff]"  # interlinear marks, tags, more variation selectors
    "|[\ue000-\uf8ff\U000f0000-\U0010ffff]"  # private use: most fonts do not display it
    "|[\ufe00-\ufe0e]"  # variation selectors, which can encode a message
    f"|(?<!{_EMOJI})(?<![#*0-9])\ufe0f|\ufe0f(?=\ufe0f)"
    f"|(?<!{_EMOJI})\u200d|\u200d(?!{_EMOJI})"
)

# Text that reads like an instruction to the model. It is reported but still served, because it may be harmless.
_MODEL_INSTRUCTIONS: Final = re.compile(
    r"ignore (?:all |any )?(?:the )?(?:previous|prior|above|other) (?:instructions|tools|prompts)"
    r"|do not (?:tell|mention|inform|show|reveal)[^.]{0,40} (?:user|human)"
    r"|(?:without|never) (?:telling|informing|mentioning)[^.]{0,40} (?:user|human)"
    r"|<\s*/?\s*(?:important|system|secret|instructions?)\s*>"
    r"|(?:your|the) system prompt"
    r"|(?:before|after|instead of) (?:using|calling|every)[^.]{0,60}(?:always|must|first) (?:read|call|send|use)"
    r"|(?:\.ssh/|id_rsa|\.aws/credentials|\.env\b|/etc/passwd)"
    r"|(?:send|post|upload|forward|exfiltrate)[^.]{0,60}(?:conversation|chat history|api[_ ]?key|credential|password)",
    re.IGNORECASE,
)

# Letters of other scripts that look like Latin ones after case folding.
_CONFUSABLES: Final = str.maketrans(
    "аеіјорсухѕһԁԛԝьαβγεικνορτυχωѵӏɡıꞵո",
    "aeijopcyxshdqwbabyeiknoptuxwvlgißn",
)


def find_hidden_character(text: str) -> str | None:
    """The first hidden character, in the form `U+202E`; None if there is none."""
    found = _HIDDEN.search(text)
    return f"U+{ord(found[0][0]):04X}" if found else None


def find_model_instruction(text: str) -> str | None:
    """The first text that reads like an instruction to the model; None if there is none."""
    found = _MODEL_INSTRUCTIONS.search(text)
    return " ".join(found[0].split())[:80] if found else None


def skeleton(name: str) -> str:
    """A comparison key: equal for names that look the same."""
    return unicodedata.normalize("NFKC", name).casefold().translate(_CONFUSABLES)


def iter_strings(value: Any, parent_key: str) -> Iterator[tuple[str, str]]:
    """All strings in a JSON value, including keys, each with the key that contains it."""
    pending: list[tuple[str, Any]] = [(parent_key, value)]
    while pending:
        parent_key, item = pending.pop()
        if isinstance(item, str):
            yield parent_key, item
        elif isinstance(item, list):
            pending += [(parent_key, each) for each in cast("list[Any]", item)]
        elif isinstance(item, dict):
            for key, each in cast("dict[str, Any]", item).items():
                yield f"a key of {parent_key}", key
                pending.append((key, each))
