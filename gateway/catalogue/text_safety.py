"""Text that a model reads: what may not be hidden in it, what looks like another, what sounds like an order."""

import re
import unicodedata
from collections.abc import Iterator
from typing import Any, Final, cast

# A joiner between two emoji draws one picture, a selector behind one colours it: neither is hidden text.
_EMOJI: Final = "[\u00a9\u00ae\u203c\u2049\u2100-\u2bff\u3030\u303d\u3297\u3299\ufe0f\U0001f000-\U0001faff]"
_HIDDEN: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]|\r(?!\n)"  # C0, C1 and with them every ANSI escape; a new line is text
    "|[\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200c\u2060-\u2065\u3164\ufeff\uffa0]"  # no width
    "|[\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f]"  # bidi controls, and separators that are no newline
    "|[\ufff0-\ufffb\U000e0000-\U000e0fff]"  # interlinear marks, tags, more variation selectors
    "|[\ue000-\uf8ff\U000f0000-\U0010ffff]"  # private use: every font draws it differently, most not at all
    "|[\ufe00-\ufe0e]"  # variation selectors, which can carry a whole message
    f"|(?<!{_EMOJI})(?<![#*0-9])\ufe0f|\ufe0f(?=\ufe0f)"
    f"|(?<!{_EMOJI})\u200d|\u200d(?!{_EMOJI})"
)

# What reads as an instruction to the model rather than a description of the tool. It only warns: words can be innocent.
_ORDERS: Final = re.compile(
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

# Letters of other scripts that cannot be told from Latin ones, after case is folded.
_LATIN: Final = str.maketrans(
    "аеіјорсухѕһԁԛԝьαβγεικνορτυχωѵӏɡıꞵո",
    "aeijopcyxshdqwbabyeiknoptuxwvlgißn",
)


def hidden_in(text: str) -> str | None:
    """The first character that nobody would see, as `U+202E`; None when all can be seen."""
    found = _HIDDEN.search(text)
    return f"U+{ord(found[0][0]):04X}" if found else None


def order_in(text: str) -> str | None:
    """The first words that sound like an order to the model."""
    found = _ORDERS.search(text)
    return " ".join(found[0].split())[:80] if found else None


def looks(name: str) -> str:
    """Equal for names that a reader cannot tell apart."""
    return unicodedata.normalize("NFKC", name).casefold().translate(_LATIN)


def strings(value: Any, place: str) -> Iterator[tuple[str, str]]:
    """Every string below, keys as well, each with the key it stands under."""
    waiting: list[tuple[str, Any]] = [(place, value)]
    while waiting:
        place, held = waiting.pop()
        if isinstance(held, str):
            yield place, held
        elif isinstance(held, list):
            waiting += [(place, each) for each in cast("list[Any]", held)]
        elif isinstance(held, dict):
            for key, each in cast("dict[str, Any]", held).items():
                yield f"a key of {place}", key
                waiting.append((key, each))
