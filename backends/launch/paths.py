"""Names and paths that come from outside: artifact names, repository paths, the fence of a run's writes."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from gateway.errors import Fault, Kind

ARTIFACT: Final = re.compile(r"(?!\.)[A-Za-z0-9][A-Za-z0-9._-]{0,127}", re.ASCII)
_MAX_PART: Final = 255
_MAX_PATH: Final = 1024


def safe_parts(path: str) -> list[str]:
    """The parts of a relative path that stays where it is put. Raises `ValueError` for any other."""
    parts = path.split("/")
    if len(path) > _MAX_PATH or not all(_safe(part) for part in parts):
        raise ValueError("not a safe relative path")
    return parts


def is_safe(path: str) -> bool:
    try:
        safe_parts(path)
    except ValueError:
        return False
    return True


def within(path: str, allowed: Iterable[str]) -> bool:
    """Whether the path lies on or below one of the allowed ones."""
    if not is_safe(path):
        return False
    return any(path == prefix.rstrip("/") or path.startswith(prefix.rstrip("/") + "/") for prefix in allowed)


def fenced(root: Path, path: str, allowed: Iterable[str]) -> Path:
    """Where to write `path` below `root`. Raises `ALLOWED_PATHS_VIOLATION` outside the fence, or through a link."""
    if within(path, allowed):
        target = root.joinpath(*safe_parts(path))
        if not any(part.is_symlink() for part in (target, *target.parents) if part != root and root in part.parents):
            return target
    raise Fault(
        Kind.DENIED,
        "The run may not write there.",
        code="ALLOWED_PATHS_VIOLATION",
        details={"path": path if is_safe(path) else "", "allowed_paths": list(allowed)},
    )


def _safe(part: str) -> bool:
    return (
        0 < len(part.encode("utf-8", "surrogateescape")) <= _MAX_PART
        and part not in (".", "..")
        and part.lower() != ".git"
        and part.isprintable()
        and "\\" not in part
        and ":" not in part
    )
