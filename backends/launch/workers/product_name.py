"""Decides the name of the product from its own repository."""

import re
from collections.abc import Sequence

from backends.launch.surface import prose
from backends.launch.workers import markdown
from backends.launch.workers.package_metadata import Metadata
from gateway.contract import Json

_GENERIC = frozenset({"for", "the", "of", "a", "an", "via", "foss", "library", "sdk", "api", "client"})


def own_name(config: Json, readme: str, packages: Sequence[Metadata]) -> str:
    """Return the product's name as the repository writes it, or the configured name if it writes none."""
    configured: str = config["product_name"]
    repository = config["github_repo_url"].rstrip("/").rpartition("/")[2].removesuffix(".git")
    spaced = re.sub(r"[-_]+", " ", repository)
    for candidate in (spaced, repository, configured):
        if found := _mention(candidate, readme):
            return found
    if (title := readme_title(readme)) and matches(configured, [title]):
        return title
    names = [metadata.name for metadata in packages if metadata.name]
    return next((name for name in names if matches(configured, [name])), configured)


def is_own(config: Json, readme: str, packages: Sequence[Metadata]) -> bool:
    """Whether the repository names the configured product: in its README, its package files or its URL."""
    evidence = [readme, *(metadata.name for metadata in packages), *(metadata.description for metadata in packages)]
    return matches(config["product_name"], [*evidence, config["github_repo_url"]])


def matches(name: str, evidence: Sequence[str]) -> bool:
    """Whether the evidence contains every distinctive part of the name."""
    known = _words(" ".join(evidence))
    wanted = _words(name) - _GENERIC
    return wanted <= known if wanted else True


def readme_title(readme: str) -> str:
    for line in markdown.lines(readme):
        found = None if line.is_code else markdown.HEADING.match(line.text)
        if found and found[1] == "#":
            title = re.sub(r"[^\w\s.+#:&()/'-]", "", prose.inline(found[2])).strip(" -:")
            return title if 2 <= len(title) <= 80 else ""
    return ""


def _mention(name: str, readme: str) -> str:
    """Return the name as the README writes it."""
    pattern = re.sub(r"(?:\\?[\s_-])+", r"[\\s_-]+", re.escape(name))
    found = re.search(rf"(?<![\w/.-]){pattern}(?![\w/])", readme, re.IGNORECASE)
    return " ".join(found[0].split()) if found else ""


def _words(text: str) -> set[str]:
    return set(re.findall(r"[a-z0-9+#]+", text.lower()))
