"""The writer that drafts with a model: builds the prompt of a section and checks the answer against its facts."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from backends.launch.surface import prose
from backends.launch.writers.grounding import is_grounded
from backends.launch.writers.interface import SectionBrief
from gateway.contract import Json

SYSTEM: Final = (
    "You write one section of a product's documentation. Use only the numbered facts. Add no fact, number, name,"
    " comparison or praise of your own. Write plain English, one sentence per line, and end each line with the numbers"
    " of the facts that it states, such as [1] or [2, 3]. Write nothing else: no heading, list marker or code block."
)
_LINE: Final = re.compile(r"^[-*]?\s*(.+?)\s*\[([\d,\s]+)\]\s*\.?$")
_MAX_LINES: Final = 30
KINDS: Final = frozenset({"text", "list"})
"""Sections that a model may draft. Code, tables and references are never left to it."""


def prompt(brief: SectionBrief) -> str:
    """Return the prompt: the page, the section and its facts, and nothing else of the repository."""
    facts = "\n".join(f"[{number}] {claim['claim_text']}" for number, claim in enumerate(brief.claims, 1))
    return f"Page: {brief.page['title']}\nSection: {brief.heading or 'introduction'}\n\nFacts:\n{facts}\n"


@dataclass(frozen=True, slots=True)
class Checked:
    """A checked answer: the Markdown of the section, or the reason why it was rejected."""

    text: str | None
    reason: str = ""


def check(answer: str, brief: SectionBrief, product: str) -> Checked:
    """Convert an answer to cited Markdown. Every line must cite facts of the section and say nothing else."""
    lines = [line.strip() for line in answer.strip().splitlines() if line.strip()]
    if not lines or len(lines) > _MAX_LINES:
        return Checked(None, "The answer has no lines or too many.")
    written: list[str] = []
    for line in lines:
        found = _LINE.match(line)
        if found is None:
            return Checked(None, f"The line cites no fact: {line[:100]}")
        numbers = [int(each) for each in re.findall(r"\d+", found[2])]
        if not numbers or any(not 1 <= number <= len(brief.claims) for number in numbers):
            return Checked(None, f"The line cites an unknown fact: {line[:100]}")
        claims = [brief.claims[number - 1] for number in dict.fromkeys(numbers)]
        sentence = prose.inline(found[1])
        if not is_grounded(sentence, [claim["claim_text"] for claim in claims], product):
            return Checked(None, f"The line says more than the facts that it cites: {line[:100]}")
        markers = " ".join(f"<!-- claim_id: {claim['claim_id']} -->" for claim in claims)
        written.append(f"{'- ' if brief.kind == 'list' else ''}{sentence} {markers}")
    return Checked(("\n" if brief.kind == "list" else "\n\n").join(written))


class ModelWriter:
    """Writes the sections whose drafts of a model were accepted earlier; `name` says which kind of model."""

    def __init__(self, sections: Mapping[str, Json]) -> None:
        self._sections = sections
        self.name = "model"

    def write(self, brief: SectionBrief) -> str | None:
        section = self._sections.get(section_key(brief.page, brief.heading))
        self.name = section["writer"] if section is not None else "model"
        return section["text"] if section is not None else None


def section_key(page: Json, heading: str) -> str:
    return f"{page['output_path']}#{heading}"
