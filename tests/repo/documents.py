"""What the documents say: their links, their code, and the blocks that carry a mark."""

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


def shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def blocks(path: Path, mark: str | None = None) -> list[Block]:
    """The document's fenced blocks; only those with that mark if it is given."""
    found = (
        Block(each["mark"] or "", each["name"] or "", int(each["exit"] or 0), each["language"], each["text"])
        for each in _BLOCK.finditer(path.read_text("utf-8"))
    )
    return [block for block in found if mark is None or block.mark == mark]


def marked(path: Path, mark: str, name: str) -> Block:
    return next(block for block in blocks(path, mark) if block.name == name)


def code(path: Path) -> Iterator[str]:
    """Every piece of code: shell blocks line by line, continued lines joined, and the spans in the text."""
    for block in blocks(path):
        if block.language == "sh":
            yield from block.text.replace("\\\n", " ").splitlines()
    yield from _SPAN.findall(_BLOCK.sub("", path.read_text("utf-8")))


def links(path: Path) -> list[str]:
    return _LINK.findall(_BLOCK.sub("", path.read_text("utf-8")))


def anchors(path: Path) -> set[str]:
    """As the hosts of repositories make them from headings."""
    text = _BLOCK.sub("", path.read_text("utf-8"))
    words = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in _HEADING.findall(text))
    return {each.strip().replace(" ", "-") for each in words}
