"""Infers product family and platform of a repository from its name, README and package files.

Each source contributes a confidence per candidate. Agreeing sources raise the confidence of a candidate; disagreeing
sources make the result ambiguous.
"""

import fnmatch
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from backends.launch.quickstart.vocabulary import PLATFORM_MENTION, find_family, find_platform

_NAMES: Final = (
    re.compile(r"aspose-(?P<family>[a-z0-9]+)-foss-(?P<platform>[a-z0-9+#.]+)", re.IGNORECASE),
    re.compile(r"aspose\.(?P<family>[a-z0-9]+)(?:-foss)?-for-(?P<platform>[a-z0-9+#.]+?)(?:-via-.*)?", re.IGNORECASE),
)
_PACKAGES: Final = (
    ("pyproject.toml", "python"), ("setup.py", "python"), ("setup.cfg", "python"), ("pom.xml", "java"),
    ("build.gradle", "java"), ("build.gradle.kts", "kotlin"), ("*.csproj", "dotnet"), ("*.sln", "dotnet"),
    ("go.mod", "go"), ("Cargo.toml", "rust"), ("composer.json", "php"), ("Gemfile", "ruby"), ("*.gemspec", "ruby"),
    ("CMakeLists.txt", "cpp"), ("Package.swift", "swift"), ("tsconfig.json", "typescript"),
    ("package.json", "javascript"),
)  # fmt: skip
_FAMILY: Final = re.compile(r"\baspose[.\s-]+([a-z0-9]+)", re.IGNORECASE)
_NAME_CONFIDENCE: Final = 0.9
_PACKAGE_CONFIDENCE: Final = 0.85
_README_CONFIDENCE: Final = 0.6
_WORD_CONFIDENCE: Final = 0.05
_MAX_SUGGESTIONS: Final = 5

Scores = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Evidence:
    """The parts of a repository that the inference reads."""

    name: str
    readme: str
    files: Sequence[str]
    """File names in the root of the repository."""


@dataclass(frozen=True, slots=True)
class Inferred:
    """Confidence per candidate, for each field."""

    family: Scores
    platform: Scores

    def confident(self, threshold: float) -> dict[str, str]:
        """Return the fields for which exactly one candidate reaches the threshold."""
        fields = {"family": self.family, "target_platform": self.platform}
        best = {
            name: [candidate for candidate, score in scores.items() if score >= threshold]
            for name, scores in fields.items()
        }
        return {name: candidates[0] for name, candidates in best.items() if len(candidates) == 1}

    def suggestions(self) -> dict[str, list[str]]:
        return {"family": _rank(self.family), "target_platform": _rank(self.platform)}


def infer(evidence: Evidence) -> Inferred:
    named_family, named_platform = _from_name(evidence.name)
    return Inferred(
        family=_combine(
            _single_candidate(named_family, _NAME_CONFIDENCE),
            _score_mentions(_mentioned_families(evidence.readme)),
            dict.fromkeys(_family_words(evidence.readme), _WORD_CONFIDENCE),
        ),
        platform=_combine(
            _single_candidate(named_platform, _NAME_CONFIDENCE),
            _from_package_files(evidence.files),
            _score_mentions(_mentioned_platforms(evidence.readme)),
        ),
    )


def _from_name(name: str) -> tuple[str | None, str | None]:
    for pattern in _NAMES:
        if found := pattern.fullmatch(name):
            return find_family(found["family"]), find_platform(found["platform"])
    return None, None


def _from_package_files(files: Sequence[str]) -> Scores:
    """Score platforms by package files. A package.json counts as JavaScript only without a tsconfig.json."""
    found = {kind for name in files for pattern, kind in _PACKAGES if fnmatch.fnmatch(name, pattern)}
    if "typescript" in found:
        found.discard("javascript")
    return dict.fromkeys(found, _PACKAGE_CONFIDENCE)


def _mentioned_families(readme: str) -> Iterable[str]:
    return (candidate for found in _FAMILY.findall(readme) if (candidate := find_family(found)) is not None)


def _family_words(readme: str) -> set[str]:
    """Return the families that the README names without the brand. They are suggestions, never enough evidence."""
    return {candidate for word in re.findall(r"\b[a-z0-9]{2,10}\b", readme.lower()) if (candidate := find_family(word))}


def _mentioned_platforms(readme: str) -> Iterable[str]:
    return (
        candidate
        for found in PLATFORM_MENTION.findall(readme.lower())
        if (candidate := find_platform(found)) is not None
    )


def _score_mentions(candidates: Iterable[str]) -> Scores:
    counted = Counter(candidates)
    total = sum(counted.values())
    return {candidate: _README_CONFIDENCE * count / total for candidate, count in counted.items()}


def _single_candidate(candidate: str | None, confidence: float) -> Scores:
    return {} if candidate is None else {candidate: confidence}


def _combine(*sources: Scores) -> Scores:
    """Combine independent confidences for the same candidate: 1 - (1 - a) * (1 - b)."""
    doubt: dict[str, float] = {}
    for scores in sources:
        for candidate, score in scores.items():
            doubt[candidate] = doubt.get(candidate, 1.0) * (1.0 - score)
    return {candidate: round(1.0 - remaining, 4) for candidate, remaining in sorted(doubt.items())}


def _rank(scores: Scores) -> list[str]:
    return sorted(scores, key=lambda candidate: (-scores[candidate], candidate))[:_MAX_SUGGESTIONS]
