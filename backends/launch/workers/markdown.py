"""Just enough of Markdown: lines with their heading, code fences, links, and the markers that cite claims."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

MARKER: Final = re.compile(r"<!--\s*claim_id:\s*([^\s>]*?)\s*-->")
LINK: Final = re.compile(r"(?<!!)\[([^\]\[]*)\]\(([^()\s]+)\)")
HEADING: Final = re.compile(r"(#{1,6})\s+(.*?)\s*#*\s*$")
BULLET: Final = re.compile(r"\s{0,3}[-*+]\s+(.*\S)\s*$")
_LONGEST: Final = 4000
"""Where a line is cut: nobody writes longer ones, but somebody may, to keep a pattern busy."""
_FENCE: Final = re.compile(r"\s{0,3}(`{3,}|~{3,})\s*([^`]*)$")


@dataclass(frozen=True, slots=True)
class Line:
    number: int
    text: str
    heading: str
    """The nearest heading above, or the one that it is."""
    code: bool
    """Whether it belongs to a code fence."""


@dataclass(frozen=True, slots=True)
class Fence:
    word: str
    code: str
    start: int
    end: int
    heading: str
    closed: bool


def lines(text: str) -> Iterator[Line]:
    heading, fence = "", ""
    for number, whole in enumerate(text.split("\n"), 1):
        line = whole[:_LONGEST].rstrip("\r")
        mark = _FENCE.match(line)
        if fence:
            yield Line(number, line, heading, code=True)
            if mark and mark[1].startswith(fence) and not mark[2].strip():
                fence = ""
        elif mark:
            fence = mark[1]
            yield Line(number, line, heading, code=True)
        else:
            if found := HEADING.match(line):
                heading = found[2]
            yield Line(number, line, heading, code=False)


def fences(text: str) -> Iterator[Fence]:
    block: list[Line] = []
    for line in lines(text):
        if not line.code:
            continue
        block.append(line)
        opening = _FENCE.match(block[0].text)
        closing = _FENCE.match(line.text)
        if opening and closing and len(block) > 1 and closing[1].startswith(opening[1]) and not closing[2].strip():
            yield _fence(block, closed=True)
            block = []
    if block:
        yield _fence(block, closed=False)


def _fence(block: list[Line], *, closed: bool) -> Fence:
    opening = _FENCE.match(block[0].text)
    inside = block[1:-1] if closed else block[1:]
    word = opening[2].split()[0] if opening and opening[2].split() else ""
    code = "".join(f"{line.text}\n" for line in inside)
    return Fence(word, code, block[0].number, block[-1].number, block[0].heading, closed)


def plain(text: str) -> str:
    """A sentence of the repository as a page may repeat it: no link, no markup that the site would act on."""
    text = LINK.sub(r"\1", re.sub(r"<!--.*?-->", "", text[:_LONGEST]))
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)", "", text)
    text = re.sub(r"(\*\*|__)(?=\S)(.+?)(?<=\S)\1", r"\2", text)
    text = re.sub(r"<[^>]*>|https?://\S+", "", text).replace("<", "&lt;").replace("{{", "").replace("}}", "")
    return re.sub(r"\s+", " ", text).strip()


def slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:60].strip("-") or "page"
