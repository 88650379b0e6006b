"""Selects the files of the product repository by the `ingestion` settings, and finds broken links in documents."""

import fnmatch
import posixpath
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Final

from backends.launch.workers import git, markdown
from gateway.contract import Json

_SNIFFED_BYTES: Final = 8192
_MAX_PHANTOMS: Final = 200

PathFilter = Callable[[str], bool]


def path_filter(config: Json, ignored: frozenset[str]) -> PathFilter:
    """Return a filter for the paths of the product repository that the run's settings include."""
    settings: Json = config.get("ingestion", {})
    roots = [PurePosixPath(root) for root in settings.get("scan_directories") or ["."]]
    excluded: list[str] = settings.get("exclude_patterns", [])

    def is_wanted(path: str) -> bool:
        inside = any(PurePosixPath(path).is_relative_to(root) for root in roots)
        return inside and path not in ignored and not any(fnmatch.fnmatch(path, pattern) for pattern in excluded)

    return is_wanted


def remove_binaries(repo: Path, taken: list[git.Blob]) -> tuple[list[git.Blob], list[Json]]:
    """Delete the files that contain a NUL byte near their start. Returns the text files and the deleted ones."""
    text: list[git.Blob] = []
    binary: list[Json] = []
    for blob in taken:
        file = repo / blob.path
        with file.open("rb") as opened:
            is_text = b"\0" not in opened.read(_SNIFFED_BYTES)
        if is_text:
            text.append(blob)
        else:
            file.unlink()
            binary.append({"path": blob.path, "reason": "binary"})
    return text, binary


def find_phantom_paths(repo: Path, documents: list[str], names: list[str]) -> list[Json]:
    """Return links of the documents to files that the repository does not contain."""
    existing = {name for path in names for name in (path, *map(str, PurePosixPath(path).parents))}
    found: list[Json] = []
    for document in documents:
        for line in markdown.lines((repo / document).read_text(encoding="utf-8", errors="replace")):
            for target in [] if line.is_code else [link[2] for link in markdown.LINK.finditer(line.text)]:
                path = _link_target(document, target)
                if path is not None and path not in existing:
                    found.append({"path": path, "document": document, "line": line.number})
    return found[:_MAX_PHANTOMS]


def _link_target(document: str, target: str) -> str | None:
    """Resolve a link of a document to a path in the repository; None for URLs and anchors."""
    path_part = target.split("#")[0].split("?")[0]
    if not path_part or ":" in path_part or path_part.startswith("//"):
        return None
    start = PurePosixPath("/") if path_part.startswith("/") else PurePosixPath("/") / PurePosixPath(document).parent
    return posixpath.normpath(str(start / path_part.lstrip("/"))).lstrip("/") or None
