"""What of the product's repository is read, as `ingestion` of the run's settings asks, and what its documents miss."""

import fnmatch
import posixpath
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Final

from backends.launch.workers import git, markdown
from gateway.contract import Json

_LOOKED_AT: Final = 8192
_MAX_PHANTOMS: Final = 200

Wanted = Callable[[str], bool]


def ingested(config: Json, ignored: frozenset[str]) -> Wanted:
    """Which paths of the product's repository the run's settings ask for; none that is ignored."""
    asked: Json = config.get("ingestion", {})
    roots = [PurePosixPath(root) for root in asked.get("scan_directories") or ["."]]
    excluded: list[str] = asked.get("exclude_patterns", [])

    def wanted(path: str) -> bool:
        inside = any(PurePosixPath(path).is_relative_to(root) for root in roots)
        return inside and path not in ignored and not any(fnmatch.fnmatch(path, pattern) for pattern in excluded)

    return wanted


def without_binaries(repo: Path, taken: list[git.Blob]) -> tuple[list[git.Blob], list[Json]]:
    """A file with a NUL near its beginning is no text; it is taken away again."""
    text: list[git.Blob] = []
    binary: list[Json] = []
    for blob in taken:
        file = repo / blob.path
        with file.open("rb") as opened:
            is_text = b"\0" not in opened.read(_LOOKED_AT)
        if is_text:
            text.append(blob)
        else:
            file.unlink()
            binary.append({"path": blob.path, "reason": "binary"})
    return text, binary


def phantoms(repo: Path, documents: list[str], names: list[str]) -> list[Json]:
    """Links of the documents to files that the repository does not have."""
    there = {name for path in names for name in (path, *map(str, PurePosixPath(path).parents))}
    found: list[Json] = []
    for document in documents:
        for line in markdown.lines((repo / document).read_text(encoding="utf-8", errors="replace")):
            for target in [] if line.code else [link[2] for link in markdown.LINK.finditer(line.text)]:
                path = _inside(document, target)
                if path is not None and path not in there:
                    found.append({"path": path, "document": document, "line": line.number})
    return found[:_MAX_PHANTOMS]


def _inside(document: str, target: str) -> str | None:
    """The path in the repository that a link of the document means; None for addresses and anchors."""
    plain = target.split("#")[0].split("?")[0]
    if not plain or ":" in plain or plain.startswith("//"):
        return None
    start = PurePosixPath("/") if plain.startswith("/") else PurePosixPath("/") / PurePosixPath(document).parent
    return posixpath.normpath(str(start / plain.lstrip("/"))).lstrip("/") or None
