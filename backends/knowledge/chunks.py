"""Splits a long text into chunks for ingestion; each chunk becomes one entry."""

import re
from typing import Final

TARGET_LENGTH: Final = 500
_MAX_PARAGRAPH: Final = 1000
_BLANK_LINES: Final = re.compile(r"\n[^\S\n]*\n\s*")


def split(text: str) -> list[str]:
    """Split into chunks of about 500 characters, at blank lines if possible. Only white space is lost."""
    chunks: list[str] = []
    for paragraph in _paragraphs(text):
        if chunks and len(chunks[-1]) + len(paragraph) + 2 <= TARGET_LENGTH:
            chunks[-1] += "\n\n" + paragraph
        else:
            chunks.append(paragraph)
    return chunks


def _paragraphs(text: str) -> list[str]:
    pieces = [part.strip() for part in _BLANK_LINES.split(text.replace("\r\n", "\n"))]
    return [short for piece in pieces if piece for short in _split_long(piece)]


def _split_long(paragraph: str) -> list[str]:
    pieces: list[str] = []
    while len(paragraph) > _MAX_PARAGRAPH:
        cut = _find_cut(paragraph)
        pieces.append(paragraph[:cut].rstrip())
        paragraph = paragraph[cut:].lstrip()
    return [*pieces, paragraph] if paragraph else pieces


def _find_cut(paragraph: str) -> int:
    """Return the cut position: after a line, a sentence or a word, or at the target length if there is none."""
    for end in ("\n", ". ", " "):
        if (at := paragraph.rfind(end, TARGET_LENGTH // 2, TARGET_LENGTH)) > 0:
            return at + len(end)
    return TARGET_LENGTH


def title_of(chunk: str) -> str:
    return chunk.split("\n", 1)[0].strip()[:100]
