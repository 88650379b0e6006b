"""Cutting a long text into pieces that each make one entry."""

import re
from typing import Final

CHUNK: Final = 500
_LONGEST: Final = 1000
_BLANK_LINES: Final = re.compile(r"\n[^\S\n]*\n\s*")


def split(text: str) -> list[str]:
    """Pieces of about 500 characters that end at blank lines where they can; nothing but white space is lost."""
    chunks: list[str] = []
    for paragraph in _paragraphs(text):
        if chunks and len(chunks[-1]) + len(paragraph) + 2 <= CHUNK:
            chunks[-1] += "\n\n" + paragraph
        else:
            chunks.append(paragraph)
    return chunks


def _paragraphs(text: str) -> list[str]:
    pieces = [part.strip() for part in _BLANK_LINES.split(text.replace("\r\n", "\n"))]
    return [short for piece in pieces if piece for short in _shortened(piece)]


def _shortened(paragraph: str) -> list[str]:
    pieces: list[str] = []
    while len(paragraph) > _LONGEST:
        cut = _cut(paragraph)
        pieces.append(paragraph[:cut].rstrip())
        paragraph = paragraph[cut:].lstrip()
    return [*pieces, paragraph] if paragraph else pieces


def _cut(paragraph: str) -> int:
    """After a line or a sentence if there is an end of one, else at a blank, else just there."""
    for end in ("\n", ". ", " "):
        if (at := paragraph.rfind(end, CHUNK // 2, CHUNK)) > 0:
            return at + len(end)
    return CHUNK


def title_of(chunk: str) -> str:
    return chunk.split("\n", 1)[0].strip()[:100]
