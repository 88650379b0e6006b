"""Resolution and confinement of paths. Every path that a caller sends is validated here once."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final
from urllib.parse import unquote

from gateway.contract import Caller, Json
from gateway.errors import Fault, Kind

PROJECT_FILE: Final = "project.godot"
DATA_FOLDER: Final = ".godot_mcp"
"""Folder inside a project where this backend stores its own files."""
_RES: Final = "res://"
_MAX_PATH: Final = 500
_MAX_NAME: Final = 255
_DEFAULT_TENANT: Final = "default"


def denied_path(label: str, reason: str) -> Fault:
    """Build the fault for a path that is not allowed. `label` names the argument."""
    return Fault(
        Kind.DENIED, f"{label} {reason}.", suggested_fix="Give a path inside the project, such as scenes/main.tscn."
    )


@dataclass(frozen=True, slots=True)
class ProjectPath:
    """A file or folder inside a project, existing or not. `path` is resolved: it contains no symbolic link."""

    root: Path
    path: Path

    @property
    def parts(self) -> tuple[str, ...]:
        return self.path.relative_to(self.root).parts

    @property
    def relative(self) -> str:
        return "/".join(self.parts)

    @property
    def res(self) -> str:
        return _RES + self.relative

    def describe(self, kind: str, size: int | None = None) -> Json:
        """Return the entry for the envelope's `files` list."""
        entry: Json = {"kind": kind, "pathAbs": str(self.path), "resPath": self.res}
        return entry if size is None else {**entry, "bytes": size}


@dataclass(frozen=True, slots=True)
class Project:
    """A project of the caller's tenant. `root` is a resolved path."""

    root: Path
    is_remote: bool = False
    """Whether the project is on another machine, so that only a connected editor can reach it."""

    def resolve(self, path: str, label: str = "The path") -> ProjectPath:
        """Return the path inside the project. Raises `Fault(DENIED)` for a path that leads outside."""
        normalized = _normalize(path, label)
        if self.is_remote:
            joined = self.root / PurePosixPath(normalized)
            if not joined.is_relative_to(self.root):
                raise denied_path(label, "leaves the project")
            return ProjectPath(self.root, joined)
        if normalized.startswith("/"):
            joined = Path(normalized)
            if not joined.is_relative_to(self.root):
                joined = _resolve(joined, label)
        else:
            joined = self.root / PurePosixPath(normalized)
        real = _resolve(joined, label)
        if not real.is_relative_to(self.root):
            raise denied_path(label, "leaves the project")
        return ProjectPath(self.root, real)

    def check_exists(self) -> "Project":
        """Return self. Raises `Fault(NOT_FOUND)` when the folder contains no `project.godot`."""
        if not self.is_remote and not (self.root / PROJECT_FILE).is_file():
            raise Fault(
                Kind.NOT_FOUND,
                "There is no Godot project at projectPath: it has no project.godot.",
                suggested_fix="Give the folder that contains project.godot, or create a project with create_project.",
            )
        return self


class Roots:
    """The folders that may contain the projects of each tenant."""

    def __init__(self, templates: Sequence[str]) -> None:
        self._templates = templates

    def for_caller(self, caller: Caller, folder: Path) -> list[Path]:
        """Return the resolved roots of the caller's tenant. `folder` is the base of relative roots."""
        found: list[Path] = []
        for template in self._templates:
            expanded = template.replace("{tenant}", caller.tenant)
            if not Path(expanded).is_absolute():
                found.append(folder / expanded)
                found[-1].mkdir(parents=True, exist_ok=True)
            elif expanded != template or caller.tenant == _DEFAULT_TENANT:
                found.append(Path(expanded))
        return [root.resolve() for root in found]

    def resolve_project(self, caller: Caller, folder: Path, path: str) -> Project:
        """Return the project at the absolute `path`.

        A path outside the roots gets the same error whether it exists or not, so that callers cannot probe for files.
        """
        _normalize(path, "projectPath", scheme=False)
        if not path.startswith("/"):
            raise denied_path("projectPath", "must be absolute")
        root = _resolve(Path(path), "projectPath")
        if not any(root.is_relative_to(each) for each in self.for_caller(caller, folder)):
            raise Fault(
                Kind.DENIED,
                "projectPath is outside the folders that may contain your projects.",
                suggested_fix="Call godot_preflight or meta_tool_manager server_info to list these folders.",
            )
        return Project(root)


def _normalize(path: str, label: str, *, scheme: bool = True) -> str:
    """Return the path without `res://`. Raises `Fault(DENIED)` for an ambiguous or escaping spelling."""
    normalized = path.removeprefix(_RES) if scheme else path
    if "\0" in normalized or any(ord(character) < 32 for character in normalized):
        raise denied_path(label, "contains a control character")
    if len(path.encode(errors="replace")) > _MAX_PATH * 4 or len(path) > _MAX_PATH:
        raise denied_path(label, "is too long")
    if any("\ud800" <= character <= "\udfff" for character in normalized):
        raise denied_path(label, "is not text")
    # A later decoding or Unicode normalization of the path must not lead outside the project either.
    for spelling in (normalized, unquote(normalized), unicodedata.normalize("NFKC", normalized)):
        _check_spelling(spelling, label)
    if scheme and normalized.startswith("//"):
        raise denied_path(label, "names another machine")
    return normalized


def _check_spelling(spelling: str, label: str) -> None:
    if "\\" in spelling or "\0" in spelling:
        raise denied_path(label, "contains a backslash or NUL")
    if "://" in spelling or spelling[1:2] == ":":
        raise denied_path(label, "names a location outside the project")
    parts = spelling.split("/")
    if ".." in parts or spelling.startswith("~"):
        raise denied_path(label, "leaves the project")
    if any(len(part.encode(errors="replace")) > _MAX_NAME for part in parts):
        raise denied_path(label, "contains a name that is too long")


def _resolve(path: Path, label: str) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError) as exc:
        raise denied_path(label, "cannot be resolved") from exc
