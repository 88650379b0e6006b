"""The interface of a writer: it drafts one section of a page from the facts of that section alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from gateway.contract import Json


@dataclass(frozen=True, slots=True)
class SectionBrief:
    """One section of a page and all that may be said in it."""

    page: Json
    heading: str
    kind: str
    claims: Sequence[Json]
    snippets: Sequence[Json]
    symbols: Sequence[Json]
    links: Mapping[str, str]
    """URL of the page of each symbol, by key."""
    pages: Sequence[Json] = ()
    """Pages that the section lists."""


class Writer(Protocol):
    """Drafts sections. `name` is recorded for each section that it wrote."""

    name: str

    def write(self, brief: SectionBrief) -> str | None:
        """Return the Markdown below the section's heading, or None if this writer has no draft for it."""
        ...
