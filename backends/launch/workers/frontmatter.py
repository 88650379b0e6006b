"""Front matter: the YAML or TOML between a page's first two fences."""

import re
import tomllib
from datetime import date
from typing import Any, Final, cast

import yaml

from gateway.contract import Json

# YAML takes these for line ends too, and folds them unless they are escaped.
_SEPARATORS: Final = frozenset("\x85\u2028\u2029")
_FENCES: Final = {"---": yaml.safe_load, "+++": tomllib.loads}


def split(page: str) -> tuple[Json | None, str]:
    """The front matter (None: there is none) and the text after it. Raises `ValueError` for one that is malformed."""
    first, _, rest = page.partition("\n")
    read = _FENCES.get(first.rstrip())
    if read is None:
        return None, page
    end = _closing(rest, first.rstrip())
    if end is None:
        raise ValueError("the front matter has no end")
    matter, body = end
    try:
        value: Any = read(matter)
    except (yaml.YAMLError, ValueError) as exc:
        raise ValueError("the front matter cannot be read") from exc
    if not isinstance(value, dict):
        raise ValueError("the front matter is not a mapping")
    return _plain(cast("Json", value)), body


def body_of(page: str) -> str:
    """What follows the front matter, however broken that is."""
    try:
        return split(page)[1]
    except ValueError:
        first, _, rest = page.partition("\n")
        end = _closing(rest, first.rstrip())
        return page if end is None else end[1]


def joined(matter: Json, body: str) -> str:
    text = yaml.safe_dump(
        matter, sort_keys=True, allow_unicode=_SEPARATORS.isdisjoint("".join(map(str, matter.values()))), width=1000
    )
    return f"---\n{text}---\n{body}"


def _closing(rest: str, fence: str) -> tuple[str, str] | None:
    at = 0
    for line in re.findall(r"[^\n]*\n|[^\n]+", rest):
        if line.rstrip() == fence:
            return rest[:at], rest[at + len(line) :]
        at += len(line)
    return None


def _plain(matter: Json) -> Json:
    return {str(key): value.isoformat() if isinstance(value, date) else value for key, value in matter.items()}
