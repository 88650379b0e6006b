"""Which family and platform a repository is of: from its name, its README and its package files.

Each source gives a candidate some confidence; two that agree make it more certain, two that disagree make it ambiguous.
"""

import fnmatch
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from backends.launch.quickstart.vocabulary import MENTION, family, platform

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
_BY_NAME: Final = 0.9
_BY_PACKAGE: Final = 0.85
_BY_README: Final = 0.6
_SHOWN: Final = 5

Scores = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Evidence:
    name: str
    readme: str
    files: Sequence[str]
    """The names at the top of the repository."""


@dataclass(frozen=True, slots=True)
class Inferred:
    family: Scores
    platform: Scores

    def sure(self, threshold: float) -> dict[str, str]:
        """The fields that exactly one candidate is sure enough for."""
        fields = {"family": self.family, "target_platform": self.platform}
        best = {name: [word for word, score in scores.items() if score >= threshold] for name, scores in fields.items()}
        return {name: words[0] for name, words in best.items() if len(words) == 1}

    def suggested(self) -> dict[str, list[str]]:
        return {"family": _ranked(self.family), "target_platform": _ranked(self.platform)}


def infer(evidence: Evidence) -> Inferred:
    named_family, named_platform = _of_name(evidence.name)
    return Inferred(
        family=_combined(_certain(named_family, _BY_NAME), _mentions(_families(evidence.readme))),
        platform=_combined(
            _certain(named_platform, _BY_NAME),
            _of_packages(evidence.files),
            _mentions(_platforms(evidence.readme)),
        ),
    )


def _of_name(name: str) -> tuple[str | None, str | None]:
    for pattern in _NAMES:
        if found := pattern.fullmatch(name):
            return family(found["family"]), platform(found["platform"])
    return None, None


def _of_packages(files: Sequence[str]) -> Scores:
    """TypeScript projects have a package.json too: its word then is not JavaScript's."""
    found = {kind for name in files for pattern, kind in _PACKAGES if fnmatch.fnmatch(name, pattern)}
    if "typescript" in found:
        found.discard("javascript")
    return dict.fromkeys(found, _BY_PACKAGE)


def _families(readme: str) -> Iterable[str]:
    return (word for found in _FAMILY.findall(readme) if (word := family(found)) is not None)


def _platforms(readme: str) -> Iterable[str]:
    return (word for found in MENTION.findall(readme.lower()) if (word := platform(found)) is not None)


def _mentions(words: Iterable[str]) -> Scores:
    counted = Counter(words)
    total = sum(counted.values())
    return {word: _BY_README * count / total for word, count in counted.items()}


def _certain(word: str | None, confidence: float) -> Scores:
    return {} if word is None else {word: confidence}


def _combined(*sources: Scores) -> Scores:
    """Independent evidence for the same candidate adds up without ever reaching certainty."""
    doubt: dict[str, float] = {}
    for scores in sources:
        for word, score in scores.items():
            doubt[word] = doubt.get(word, 1.0) * (1.0 - score)
    return {word: round(1.0 - left, 4) for word, left in sorted(doubt.items())}


def _ranked(scores: Scores) -> list[str]:
    return sorted(scores, key=lambda word: (-scores[word], word))[:_SHOWN]
