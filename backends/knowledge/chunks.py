"""Splits a long text into chunks for ingestion; each chunk becomes one entry."""

import re
from dataclasses import dataclass
from typing import Final

TARGET_LENGTH: Final = 500
_MAX_PARAGRAPH: Final = 1000
_BLANK_LINES: Final = re.compile(r"\r?\n[^\S\n]*\n\s*")


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a text, and where it stands in it: from `start` up to but not including `end`, in characters."""

    text: str
    start: int
    end: int


def split(text: str) -> list[Chunk]:
    """Split into chunks of about 500 characters, at blank lines if possible. Only white space is lost."""
    chunks: list[Chunk] = []
    for paragraph in _paragraphs(text):
        if chunks and len(chunks[-1].text) + len(paragraph.text) + 2 <= TARGET_LENGTH:
            last = chunks[-1]
            chunks[-1] = Chunk(f"{last.text}\n\n{paragraph.text}", last.start, paragraph.end)
        else:
            chunks.append(paragraph)
    return chunks


def _paragraphs(text: str) -> list[Chunk]:
    found: list[Chunk] = []
    start = 0
    for blank in [*_BLANK_LINES.finditer(text), None]:
        end = len(text) if blank is None else blank.start()
        found += _split_long(text, start, end)
        start = end if blank is None else blank.end()
    return found


def _split_long(text: str, start: int, end: int) -> list[Chunk]:
    pieces: list[Chunk] = []
    start, end = _strip(text, start, end)
    while end - start > _MAX_PARAGRAPH:
        cut = start + _find_cut(text[start:end])
        pieces.append(_chunk(text, start, cut))
        start, end = _strip(text, cut, end)
    return [*pieces, _chunk(text, start, end)] if start < end else pieces


def _chunk(text: str, start: int, end: int) -> Chunk:
    start, end = _strip(text, start, end)
    return Chunk(text[start:end].replace("\r\n", "\n"), start, end)


def _strip(text: str, start: int, end: int) -> tuple[int, int]:
    part = text[start:end]
    start += len(part) - len(part.lstrip())
    return start, max(start, end - (len(part) - len(part.rstrip())))


def _find_cut(paragraph: str) -> int:
    """Return the cut position: after a line, a sentence or a word, or at the target length if there is none."""
    for end in ("\n", ". ", " "):
        if (at := paragraph.rfind(end, TARGET_LENGTH // 2, TARGET_LENGTH)) > 0:
            return at + len(end)
    return TARGET_LENGTH


def title_of(chunk: str) -> str:
    return chunk.split("\n", 1)[0].strip()[:100]
