"""How arguments are shown to approvers: redacted as the tenant says, and without characters that hide text."""

import json
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final, cast

from gateway.contract import Caller, Json

REDACTED: Final = "[redacted]"
_HIDDEN_CATEGORIES: Final = frozenset({"Cc", "Cf", "Co", "Cn", "Cs", "Zl", "Zp"})


@dataclass(frozen=True, slots=True)
class RedactionRule:
    """Arguments that a tenant hides from approvers, and the groups whose members see them all the same."""

    patterns: tuple[str, ...] = ()
    """Names of arguments at any depth, or dotted paths; `*` matches any text. Case does not matter."""
    visible_to: frozenset[str] = frozenset()

    def for_viewer(self, viewer: Caller) -> tuple[str, ...]:
        """The patterns that apply to a viewer."""
        return () if not self.visible_to.isdisjoint(viewer.groups) else self.patterns


@dataclass(frozen=True, slots=True)
class ShownArguments:
    """Arguments as text for people. Only a viewer to whom they are complete may approve the call."""

    text: str
    complete: bool


def show_arguments(arguments: str | None, patterns: Sequence[str]) -> ShownArguments:
    """Render canonical arguments. Those that were erased are not complete."""
    if arguments is None:
        return ShownArguments("(erased)", complete=False)
    lowered = [pattern.lower() for pattern in patterns]
    value, hidden = _redact(json.loads(arguments), "", lowered)
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return ShownArguments("".join(map(_visible, text)), complete=hidden == 0)


def _redact(value: Any, path: str, patterns: Sequence[str]) -> tuple[Any, int]:
    """Return the value with hidden parts replaced, and how many were."""
    if isinstance(value, dict):
        shown: Json = {}
        hidden = 0
        for key, each in cast("Json", value).items():
            below = f"{path}.{key}" if path else key
            if _matches(below, key, patterns):
                shown[key], hidden = REDACTED, hidden + 1
            else:
                shown[key], count = _redact(each, below, patterns)
                hidden += count
        return shown, hidden
    if isinstance(value, list):
        pairs = [_redact(each, path, patterns) for each in cast("list[Any]", value)]
        return [each for each, _ in pairs], sum(count for _, count in pairs)
    return value, 0


def _matches(path: str, key: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(key.lower(), each) or fnmatchcase(path.lower(), each) for each in patterns)


def _visible(character: str) -> str:
    """Write a control, format or direction character as its escape: text must not look other than it is."""
    if character == "\n" or unicodedata.category(character) not in _HIDDEN_CATEGORIES:
        return character
    return json.dumps(character)[1:-1] if ord(character) > 0x7E else f"\\u{ord(character):04x}"
