"""Splits a Markdown or reST document into paragraphs, list items and code, each with its headings and lines."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from backends.launch.surface import prose
from backends.launch.workers import markdown

_MAX_BYTES: Final = 400_000
_UNDERLINE: Final = re.compile(r"^([=\-~^\"'*+#`])\1{2,}\s*$")
_LINK: Final = re.compile(r"!?\[[^\]]*\]\([^)]*\)|!?\[[^\]]*\]\[[^\]]*\]|https?://\S+|`[^`]*<[^`]*>`_")
_HARD_BREAK: Final = re.compile(r"(?:\\|\s{2,}|<br\s*/?>)\s*$")


@dataclass(frozen=True, slots=True)
class Passage:
    kind: Literal["text", "item"]
    text: str
    """Safe inline Markdown."""
    start: int
    end: int
    headings: tuple[str, ...]
    """The headings above, the nearest last."""


def passages(text: str) -> Iterator[Passage]:
    """Yield the paragraphs and list items of a Markdown document. Code, tables, images and link bars are left out."""
    headings: list[tuple[int, str]] = []
    paragraph: list[markdown.Line] = []
    kind: Literal["text", "item"] = "text"

    def flush() -> Iterator[Passage]:
        raw = [line.text for line in paragraph]
        if paragraph and not _is_navigation(" ".join(raw)):
            first = markdown.BULLET.match(raw[0]) or re.match(r"\s{0,3}\d{1,2}[.)]\s+(.*)$", raw[0])
            words = prose.inline(" ".join([first[1] if kind == "item" and first else raw[0], *raw[1:]]))
            if len(re.sub(r"\W", "", words)) >= 2:
                titles = tuple(title for _, title in headings)
                yield Passage(kind, words, paragraph[0].number, paragraph[-1].number, titles)
        paragraph.clear()

    for line in markdown.lines(_without_html_blocks(text[:_MAX_BYTES])):
        heading = None if line.is_code else markdown.HEADING.match(line.text)
        bullet = markdown.BULLET.match(line.text) or re.match(r"\s{0,3}\d{1,2}[.)]\s+(.*)$", line.text)
        nested = re.match(r"\s{4,}[-*+]\s+\S", line.text)
        if (
            line.is_code
            or heading
            or not line.text.strip()
            or line.text.lstrip().startswith(("|", "<!--", ":--", "[//]"))
        ):
            yield from flush()
            kind = "text"
            if heading:
                level = len(heading[1])
                headings = [each for each in headings if each[0] < level]
                headings.append((level, prose.inline(heading[2])))
        elif bullet or nested:
            yield from flush()
            kind = "item"
            text_line = line.text if bullet else line.text.strip()
            paragraph.append(markdown.Line(line.number, text_line, line.heading, is_code=False))
        elif line.text.startswith(("    ", "\t")) and not paragraph:
            continue
        else:
            paragraph.append(line)
            if kind == "text" and _HARD_BREAK.search(line.text):
                yield from flush()
    yield from flush()


def _without_html_blocks(text: str) -> str:
    """Blank out HTML comments and block elements, keeping the number of lines."""

    def blank(found: re.Match[str]) -> str:
        return "\n" * found[0].count("\n")

    text = re.sub(r"<!--.*?-->", blank, text, flags=re.DOTALL)
    return re.sub(
        r"<(table|details|picture|svg|script|style|iframe)\b.*?</\1>", blank, text, flags=re.DOTALL | re.IGNORECASE
    )


def _is_navigation(text: str) -> bool:
    """Whether the paragraph is a bar of links or badges."""
    rest = re.sub(r"</?[A-Za-z][^<>]*>", " ", _LINK.sub(" ", text))
    links = len(_LINK.findall(text))
    words = len(re.findall(r"\w{2,}", rest))
    return links >= 1 and words < max(3, 2 * links)


def from_rst(text: str) -> str:
    """Convert reST headings, code blocks and links to Markdown, line by line."""
    lines = text[:_MAX_BYTES].splitlines()
    converted: list[str] = []
    styles: list[str] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        following = lines[at + 1] if at + 1 < len(lines) else ""
        directive = re.match(r"^(\s*)\.\. ([\w-]+)::\s*(.*)$", line)
        if line.strip() and _UNDERLINE.match(following) and not _UNDERLINE.match(line) and not line.startswith(" "):
            mark = following[0]
            if mark not in styles:
                styles.append(mark)
            converted += [f"{'#' * (styles.index(mark) + 1)} {line.strip()}", ""]
            at += 2
        elif _UNDERLINE.match(line):
            converted.append("")
            at += 1
        elif directive or (line.rstrip().endswith("::") and line.strip()):
            at = _convert_block(lines, at, converted, directive)
        else:
            converted.append(re.sub(r"``([^`]+)``", r"`\1`", re.sub(r"`([^`<]+)\s+<([^>]+)>`__?", r"[\1](\2)", line)))
            at += 1
    return "\n".join(converted)


def _convert_block(lines: list[str], at: int, converted: list[str], directive: "re.Match[str] | None") -> int:
    """Convert a directive or literal block. The result has as many lines as the source."""
    base = len(lines[at]) - len(lines[at].lstrip())
    end = at + 1
    while end < len(lines) and (not lines[end].strip() or len(lines[end]) - len(lines[end].lstrip()) > base):
        end += 1
    body = lines[at + 1 : end]
    if directive and directive[2] not in ("code-block", "code", "sourcecode", "highlight"):
        converted += [""] * (end - at)
        return end
    content = [line for line in body if line.strip() and not re.match(r"^\s+:[\w-]+:", line)]
    if len(body) < 2 or not content or body[-1].strip():
        converted += [lines[at].rstrip(": ") if not directive else "", *[""] * len(body)]
        return end
    indent = min(len(line) - len(line.lstrip()) for line in content)
    language = directive[3].strip() if directive else ""
    inner = ["" if re.match(r"^\s+:[\w-]+:", line) else line[indent:] for line in body]
    if directive:
        converted += [f"```{language}", *inner[:-1], "```"]
    else:
        converted += [lines[at].rstrip(": ") + ":", "```" + language, *inner[1:-1], "```"]
    return end
