"""Collects claims from the README and the changelog: overview, features, requirements, installation, changes."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from backends.launch.surface import prose
from backends.launch.workers import document, markdown
from backends.launch.workers.claims import ClaimCollector, Origin
from backends.launch.workers.package_metadata import Metadata, install_lines, names_package
from gateway.contract import Json

_HEADINGS: Final = (
    (re.compile(r"limitation|known issue|not supported|unsupported", re.IGNORECASE), "limitation", "limitations"),
    (re.compile(r"\bformats?\b|save .* as|load .*file", re.IGNORECASE), "format", "key_features"),
    (re.compile(r"feature|capabilit|highlight|what it does|why |benefits", re.IGNORECASE), "feature", "key_features"),
    (
        re.compile(r"require|compatib|platform|prerequisite|supported (?:versions|operating)", re.IGNORECASE),
        "requirement",
        "compatibility_notes",
    ),
)  # fmt: skip
_SKIPPED: Final = re.compile(
    r"licen[cs]e|contribut|author|credit|sponsor|support(?:ers)?$|donat|thank|acknowledg|changelog|release|contact|community"
    r"|security|table of contents|^contents$|documentation|links|build|develop|test|code of conduct|stargazer|badge",
    re.IGNORECASE,
)
_COMMAND: Final = re.compile(
    r"^[$>]?\s*((?:(?:python3? -m )?pip3? install|npm (?:install|i)|yarn add|pnpm (?:add|install)|bun add|dotnet add"
    r"|go get|cargo add|gem install|composer require|nuget install|uv add|poetry add|conda install|brew install"
    r"|deno add|go install|cargo install)\b[^|&;#`]*)"
)
_VERSION: Final = re.compile(r"v?\d+\.\d+[\w.+-]*")
_MAX_OVERVIEW: Final = 6
_MAX_FEATURES: Final = 60
_MAX_RELEASES: Final = 12
_MAX_CHANGES: Final = 40


@dataclass(slots=True)
class ReadmeFacts:
    """What the README says, as ids of claims."""

    tagline: str = ""
    tagline_id: str | None = None
    overview: list[str] = field(default_factory=list[str])
    feature_groups: list[Json] = field(default_factory=list[Json])
    install: list[Json] = field(default_factory=list[Json])
    changes: list[Json] = field(default_factory=list[Json])


def collect(
    collector: ClaimCollector, documents: Sequence[tuple[str, str]], packages: Sequence[Metadata], platform: str
) -> ReadmeFacts:
    """Collect the claims of the documents, the README first."""
    facts = ReadmeFacts()
    if documents:
        _collect_readme(collector, facts, *documents[0])
    described = next((each for each in packages if each.description), None)
    if facts.tagline_id is None and described is not None:
        text = prose.inline(described.description)
        origin = Origin(described.path, described.line("description"), described.line("description"))
        facts.tagline, facts.tagline_id = text, collector.add(text, "positioning", origin)
    facts.install = list(_installation(collector, documents, packages, platform))
    return facts


def _collect_readme(collector: ClaimCollector, facts: ReadmeFacts, path: str, text: str) -> None:
    groups: dict[str, list[str]] = {}
    loose: list[tuple[str, Origin]] = []
    for passage in document.passages(text):
        origin = Origin(path, passage.start, passage.end)
        kind = _kind(passage.headings)
        title = passage.headings[-1] if passage.headings else ""
        if kind is not None:
            is_listed = passage.kind == "item" or kind[0] in ("format", "requirement", "limitation")
            identity = collector.add(passage.text, kind[0], origin, kind[1]) if is_listed else None
            if identity is not None and kind[0] in ("feature", "format"):
                groups.setdefault(title, []).append(identity)
            elif not is_listed and len(facts.overview) < _MAX_OVERVIEW and not passage.text.endswith(":"):
                identity = collector.add(passage.text, "overview", origin)
                facts.overview += [identity] if identity else []
        elif len(passage.headings) <= 1 or (facts.tagline_id is None and not _SKIPPED.search(title)):
            if passage.kind == "item":
                loose.append((passage.text, origin))
            elif facts.tagline_id is None and _is_sentence(passage.text):
                facts.tagline = passage.text
                facts.tagline_id = collector.add(passage.text, "positioning", origin)
            elif facts.tagline_id is not None and len(facts.overview) < _MAX_OVERVIEW and _is_sentence(passage.text):
                identity = collector.add(passage.text, "overview", origin)
                facts.overview += [identity] if identity and identity != facts.tagline_id else []
    if not groups and len(loose) >= 2:
        # A list in the introduction states what the product offers.
        found = [collector.add(text, "feature", origin, "key_features") for text, origin in loose[:_MAX_FEATURES]]
        groups["Features"] = [identity for identity in found if identity is not None]
    facts.feature_groups = [
        {"title": title or "Features", "claim_ids": list(dict.fromkeys(ids))[:_MAX_FEATURES]}
        for title, ids in groups.items()
        if ids
    ]


def _kind(headings: Sequence[str]) -> tuple[str, str] | None:
    for heading in reversed(headings[1:] if len(headings) > 1 else headings):
        for pattern, kind, group in _HEADINGS:
            if pattern.search(heading):
                return kind, group
        if _SKIPPED.search(heading):
            return None
    return None


_POINTER: Final = re.compile(
    r"(?:please )?(?:visit|see|read|check|refer|click|for (?:more|further)|you can find|the documentation)\b",
    re.IGNORECASE,
)


def _is_sentence(text: str) -> bool:
    return (
        not _POINTER.match(text)
        and len(text) >= 25
        and text.count(" ") >= 3
        and not text.endswith(":")
        and not _COMMAND.match(text.strip("`"))
    )


# ---- installation ----


def _installation(
    collector: ClaimCollector, documents: Sequence[tuple[str, str]], packages: Sequence[Metadata], platform: str
) -> Iterator[Json]:
    """Yield install commands: those of the documents that name the real package, or the one that it implies."""
    named = [each for each in packages if each.name]
    seen: set[str] = set()
    for path, text in documents[:1]:
        for number, line in _command_lines(text):
            found = _COMMAND.match(line)
            command = " ".join(found[1].split()) if found else ""
            fits = any(names_package(command, each.name) for each in named) if named else True
            if command and fits and command not in seen and not re.search(r"\s-e\s|\s\.|[<>{}]", f"{command} "):
                seen.add(command)
                yield from _install_claim(collector, command, Origin(path, number, number))
    if not seen:
        for metadata in named:
            for command in install_lines(platform, metadata):
                if command not in seen:
                    seen.add(command)
                    line = metadata.line("name")
                    yield from _install_claim(collector, command, Origin(metadata.path, line, line))


def _install_claim(collector: ClaimCollector, command: str, origin: Origin) -> Iterator[Json]:
    identity = collector.add(f"Install it with `{command}`.", "install", origin, "install_steps")
    if identity is not None:
        yield {"command": command, "claim_id": identity}


def _command_lines(text: str) -> Iterator[tuple[int, str]]:
    for line in markdown.lines(text):
        if line.is_code:
            yield line.number, line.text.strip()
        else:
            for span in re.findall(r"`([^`]+)`", line.text):
                yield line.number, span.strip()


# ---- changelog ----


def collect_changes(collector: ClaimCollector, path: str, text: str) -> list[Json]:
    """Return the newest releases with their changes."""
    releases: dict[str, list[str]] = {}
    for passage in document.passages(text):
        title = next((each for each in reversed(passage.headings) if _VERSION.search(each)), None)
        if title is None or (title not in releases and len(releases) >= _MAX_RELEASES):
            continue
        entries = releases.setdefault(title, [])
        if len(entries) < _MAX_CHANGES and len(passage.text) <= 600:
            identity = collector.add(passage.text, "change", Origin(path, passage.start, passage.end))
            if identity is not None and identity not in entries:
                entries.append(identity)
    return [{"title": title, "claim_ids": ids} for title, ids in releases.items() if ids]
