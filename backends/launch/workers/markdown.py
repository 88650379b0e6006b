"""A minimal Markdown parser: lines with their heading, code fences, links and claim markers."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

MARKER: Final = re.compile(r"<!--\s*claim_id:\s*([^\s>]*?)\s*-->")
LINK: Final = re.compile(r"(?<!!)\[([^\]\[]*)\]\(([^()\s]+)\)")
HEADING: Final = re.compile(r"(#{1,6})\s+(.*?)\s*#*\s*$")
BULLET: Final = re.compile(r"\s{0,3}[-*+]\s+(.*\S)\s*$")
_MAX_LINE_LENGTH: Final = 4000
"""Longer lines are truncated, to bound the time of regular expressions on hostile input."""
_FENCE: Final = re.compile(r"\s{0,3}(`{3,}|~{3,})\s*([^`]*)$")


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a page with its context."""

    number: int
    text: str
    heading: str
    """The nearest heading above, or the line's own heading."""
    is_code: bool
    """Whether the line belongs to a code fence."""


@dataclass(frozen=True, slots=True)
class Fence:
    """A fenced code block. `start` and `end` are the line numbers of its delimiters."""

    language_tag: str
    code: str
    start: int
    end: int
    heading: str
    is_closed: bool


def lines(text: str) -> Iterator[Line]:
    heading, fence = "", ""
    for number, full_line in enumerate(text.split("\n"), 1):
        line = full_line[:_MAX_LINE_LENGTH].rstrip("\r")
        mark = _FENCE.match(line)
        if fence:
            yield Line(number, line, heading, is_code=True)
            if mark and mark[1].startswith(fence) and not mark[2].strip():
                fence = ""
        elif mark:
            fence = mark[1]
            yield Line(number, line, heading, is_code=True)
        else:
            if found := HEADING.match(line):
                heading = found[2]
            yield Line(number, line, heading, is_code=False)


def fences(text: str) -> Iterator[Fence]:
    block: list[Line] = []
    for line in lines(text):
        if not line.is_code:
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
    language_tag = opening[2].split()[0] if opening and opening[2].split() else ""
    code = "".join(f"{line.text}\n" for line in inside)
    return Fence(language_tag, code, block[0].number, block[-1].number, block[0].heading, closed)


def to_plain_text(text: str) -> str:
    """Remove links and markup from untrusted text, so that it is inert on a page of the site."""
    text = LINK.sub(r"\1", re.sub(r"<!--.*?-->", "", text[:_MAX_LINE_LENGTH]))
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)", "", text)
    text = re.sub(r"(\*\*|__)(?=\S)(.+?)(?<=\S)\1", r"\2", text)
    text = re.sub(r"<[^>]*>|https?://\S+", "", text).replace("<", "&lt;").replace("{{", "").replace("}}", "")
    return re.sub(r"\s+", " ", text).strip()


def slugify(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:60].strip("-") or "page"
