"""Reads and writes front matter: the YAML or TOML block at the start of a page."""

import re
import tomllib
from datetime import date
from typing import Any, Final, cast

import yaml

from gateway.contract import Json

# YAML also treats these as line breaks and folds them unless they are escaped.
_SEPARATORS: Final = frozenset("\x85\u2028\u2029")
_FENCES: Final = {"---": yaml.safe_load, "+++": tomllib.loads}


def split(page: str) -> tuple[Json | None, str]:
    """Return the front matter (None if absent) and the text after it. Raises `ValueError` if it is malformed."""
    first, _, rest = page.partition("\n")
    read = _FENCES.get(first.rstrip())
    if read is None:
        return None, page
    end = _find_closing_fence(rest, first.rstrip())
    if end is None:
        raise ValueError("the front matter has no end")
    matter, body = end
    try:
        value: Any = read(matter)
    except (yaml.YAMLError, ValueError) as exc:
        raise ValueError("the front matter cannot be read") from exc
    if not isinstance(value, dict):
        raise ValueError("the front matter is not a mapping")
    return _plain_values(cast("Json", value)), body


def body_of(page: str) -> str:
    """Return the text after the front matter, even if the front matter is malformed."""
    try:
        return split(page)[1]
    except ValueError:
        first, _, rest = page.partition("\n")
        end = _find_closing_fence(rest, first.rstrip())
        return page if end is None else end[1]


def join(matter: Json, body: str) -> str:
    text = yaml.safe_dump(
        matter, sort_keys=True, allow_unicode=_SEPARATORS.isdisjoint("".join(map(str, matter.values()))), width=1000
    )
    return f"---\n{text}---\n{body}"


def _find_closing_fence(rest: str, fence: str) -> tuple[str, str] | None:
    at = 0
    for line in re.findall(r"[^\n]*\n|[^\n]+", rest):
        if line.rstrip() == fence:
            return rest[:at], rest[at + len(line) :]
        at += len(line)
    return None


def _plain_values(matter: Json) -> Json:
    return {str(key): value.isoformat() if isinstance(value, date) else value for key, value in matter.items()}
