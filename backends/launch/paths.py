"""Checks for untrusted names and paths: artifact names, repository paths and the allowed paths of a run."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from gateway.errors import Fault, Kind

ARTIFACT_NAME: Final = re.compile(r"(?!\.)[A-Za-z0-9][A-Za-z0-9._-]{0,127}", re.ASCII)
_MAX_PART: Final = 255
_MAX_PATH: Final = 1024


def safe_parts(path: str) -> list[str]:
    """Split a relative path that cannot leave its root. Raises `ValueError` for any other path."""
    parts = path.split("/")
    if len(path) > _MAX_PATH or not all(_is_safe_part(part) for part in parts):
        raise ValueError("not a safe relative path")
    return parts


def is_safe(path: str) -> bool:
    try:
        safe_parts(path)
    except ValueError:
        return False
    return True


def is_within(path: str, allowed: Iterable[str]) -> bool:
    """Whether the path equals an allowed path or lies below one."""
    if not is_safe(path):
        return False
    return any(path == prefix.rstrip("/") or path.startswith(prefix.rstrip("/") + "/") for prefix in allowed)


def resolve_allowed(root: Path, path: str, allowed: Iterable[str]) -> Path:
    """Return the file to write for `path` below `root`.

    Raises `ALLOWED_PATHS_VIOLATION` for a path outside the allowed paths or through a symlink.
    """
    if is_within(path, allowed):
        target = root.joinpath(*safe_parts(path))
        if not any(part.is_symlink() for part in (target, *target.parents) if part != root and root in part.parents):
            return target
    raise Fault(
        Kind.DENIED,
        "The run may not write to this path.",
        code="ALLOWED_PATHS_VIOLATION",
        details={"path": path if is_safe(path) else "", "allowed_paths": list(allowed)},
    )


def _is_safe_part(part: str) -> bool:
    return (
        0 < len(part.encode("utf-8", "surrogateescape")) <= _MAX_PART
        and part not in (".", "..")
        and part.lower() != ".git"
        and part.isprintable()
        and "\\" not in part
        and ":" not in part
    )
