"""Collects claims: statements about the product, each with the lines of the repository that it comes from."""

import re
from dataclasses import dataclass, field
from typing import Final

from backends.launch.serialization import digest
from gateway.contract import Json

_MAX_CLAIM: Final = 2000
_INFERRED: Final = re.compile(r"\b(probably|might|may be|should be able|seems?|presumably)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Origin:
    """The lines of a file of the repository."""

    path: str
    start: int
    end: int


@dataclass(slots=True)
class ClaimCollector:
    """Collects claims. A claim found in two places is stored once with two citations."""

    product: str
    claims: dict[str, Json] = field(default_factory=dict[str, Json])
    groups: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    def add(self, text: str, kind: str, origin: Origin, group: str | None = None) -> str | None:
        """Add a statement, which must be safe Markdown. Returns its id, or None if it is too short or too long."""
        if not 3 <= len(text) <= _MAX_CLAIM or not re.search(r"\w", text):
            return None
        identity = claim_id(text, kind, self.product)
        # Documentation of an API describes conditions ("might raise"); it is quoted, not inferred.
        inferred = kind != "api" and _INFERRED.search(text) is not None
        new: Json = {
            "claim_id": identity,
            "claim_text": text,
            "claim_kind": kind,
            "truth_status": "inference" if inferred else "fact",
            "citations": [],
        }
        claim = self.claims.setdefault(identity, new)
        cited = {"path": origin.path, "start_line": origin.start, "end_line": max(origin.start, origin.end)}
        if cited not in claim["citations"]:
            claim["citations"].append(cited)
        if group is not None and identity not in self.groups.setdefault(group, []):
            self.groups[group].append(identity)
        return identity


def claim_id(text: str, kind: str, product: str) -> str:
    """Return an id that does not depend on whitespace or capitalization."""
    normal = " ".join(text.split()).lower().replace(product.lower(), "{product}")
    return digest(f"{normal}|{kind}".encode())
