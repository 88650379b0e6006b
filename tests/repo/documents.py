"""Parses the Markdown documents: links, code, headings, and marked blocks. Used by the tests of this folder."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
README: Final = ROOT / "README.md"

_BLOCK: Final = re.compile(
    r"(?:<!-- (?P<mark>\w+): (?P<name>[\w./-]+)(?: \(exit (?P<exit>\d+)\))? -->\n)?"
    r"^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_SPAN: Final = re.compile(r"`([^`\n]+)`")
_LINK: Final = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
_HEADING: Final = re.compile(r"^#+ (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block, and the mark above it, such as `<!-- tested: keys -->`."""

    mark: str
    name: str
    exit: int
    language: str
    text: str


def documents() -> list[Path]:
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "policies").glob("*.md")])


def relative_path(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def blocks(path: Path, mark: str | None = None) -> list[Block]:
    """Return the document's fenced blocks, or only those with the given mark."""
    found = (
        Block(each["mark"] or "", each["name"] or "", int(each["exit"] or 0), each["language"], each["text"])
        for each in _BLOCK.finditer(path.read_text("utf-8"))
    )
    return [block for block in found if mark is None or block.mark == mark]


def find_block(path: Path, mark: str, name: str) -> Block:
    return next(block for block in blocks(path, mark) if block.name == name)


def code(path: Path) -> Iterator[str]:
    """Yield all code: shell blocks line by line, with continued lines joined, and the code spans of the text."""
    for block in blocks(path):
        if block.language == "sh":
            yield from block.text.replace("\\\n", " ").splitlines()
    yield from _SPAN.findall(_BLOCK.sub("", path.read_text("utf-8")))


def links(path: Path) -> list[str]:
    return _LINK.findall(_BLOCK.sub("", path.read_text("utf-8")))


def anchors(path: Path) -> set[str]:
    """Return the anchors of the headings, formed as repository hosts form them."""
    text = _BLOCK.sub("", path.read_text("utf-8"))
    words = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in _HEADING.findall(text))
    return {each.strip().replace(" ", "-") for each in words}
