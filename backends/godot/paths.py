"""Where a project may lie, and what lies inside it. Every path of a caller goes through here once."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final
from urllib.parse import unquote

from gateway.contract import Caller, Json
from gateway.errors import Fault, Kind

PROJECT_FILE: Final = "project.godot"
OURS: Final = ".godot_mcp"
"""The folder in a project that this backend keeps its own files in."""
_RES: Final = "res://"
_MAX_PATH: Final = 500
_MAX_NAME: Final = 255
_DEFAULT_TENANT: Final = "default"


def refused(what: str, why: str) -> Fault:
    return Fault(
        Kind.DENIED, f"{what} {why}.", suggested_fix="Give a path inside the project, such as scenes/main.tscn."
    )


@dataclass(frozen=True, slots=True)
class Place:
    """A file or folder inside a project, whether it exists or not. `path` has no link in it."""

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

    def described(self, kind: str, size: int | None = None) -> Json:
        """Its entry in the envelope's `files`."""
        entry: Json = {"kind": kind, "pathAbs": str(self.path), "resPath": self.res}
        return entry if size is None else {**entry, "bytes": size}


@dataclass(frozen=True, slots=True)
class Project:
    """A project of the caller's tenant; `root` is resolved."""

    root: Path
    remote: bool = False
    """Whether only a connected editor can reach it: its path means nothing on this machine."""

    def inside(self, given: str, what: str = "The path") -> Place:
        """Raises `Fault(DENIED)` for whatever would leave the project."""
        plain = _plain(given, what)
        if self.remote:
            path = self.root / PurePosixPath(plain)
            if not path.is_relative_to(self.root):
                raise refused(what, "leaves the project")
            return Place(self.root, path)
        if plain.startswith("/"):
            path = Path(plain)
            if not path.is_relative_to(self.root):
                path = _resolved(path, what)
        else:
            path = self.root / PurePosixPath(plain)
        real = _resolved(path, what)
        if not real.is_relative_to(self.root):
            raise refused(what, "leaves the project")
        return Place(self.root, real)

    def check(self) -> "Project":
        if not self.remote and not (self.root / PROJECT_FILE).is_file():
            raise Fault(
                Kind.NOT_FOUND,
                "There is no Godot project at projectPath: it has no project.godot.",
                suggested_fix="Give the folder that holds project.godot, or make one with create_project.",
            )
        return self


class Roots:
    """The folders that the projects of each tenant lie in."""

    def __init__(self, given: Sequence[str]) -> None:
        self._given = given

    def of(self, caller: Caller, folder: Path) -> list[Path]:
        found: list[Path] = []
        for root in self._given:
            named = root.replace("{tenant}", caller.tenant)
            if not Path(named).is_absolute():
                found.append(folder / named)
                found[-1].mkdir(parents=True, exist_ok=True)
            elif named != root or caller.tenant == _DEFAULT_TENANT:
                found.append(Path(named))
        return [root.resolve() for root in found]

    def project(self, caller: Caller, folder: Path, given: str) -> Project:
        """`projectPath` is absolute. One that lies elsewhere is refused alike, whether it exists or not."""
        _plain(given, "projectPath", scheme=False)
        if not given.startswith("/"):
            raise refused("projectPath", "must be absolute")
        root = _resolved(Path(given), "projectPath")
        if not any(root.is_relative_to(each) for each in self.of(caller, folder)):
            raise Fault(
                Kind.DENIED,
                "projectPath lies outside the folders that your projects may lie in.",
                suggested_fix="Call godot_preflight or meta_tool_manager server_info to see which folders those are.",
            )
        return Project(root)


def _plain(given: str, what: str, *, scheme: bool = True) -> str:
    """The path without `res://`, once nothing in its spelling can mislead anyone who reads it later."""
    plain = given.removeprefix(_RES) if scheme else given
    if "\0" in plain or any(ord(letter) < 32 for letter in plain):
        raise refused(what, "holds a control character")
    if len(given.encode(errors="replace")) > _MAX_PATH * 4 or len(given) > _MAX_PATH:
        raise refused(what, "is too long")
    if any("\ud800" <= letter <= "\udfff" for letter in plain):
        raise refused(what, "is not text")
    # Whoever decodes or normalises the name later must not find a way out in it.
    for reading in (plain, unquote(plain), unicodedata.normalize("NFKC", plain)):
        _check_reading(reading, what)
    if scheme and plain.startswith("//"):
        raise refused(what, "names another machine")
    return plain


def _check_reading(reading: str, what: str) -> None:
    if "\\" in reading or "\0" in reading:
        raise refused(what, "holds a backslash or NUL")
    if "://" in reading or reading[1:2] == ":":
        raise refused(what, "names another place than the project")
    parts = reading.split("/")
    if ".." in parts or reading.startswith("~"):
        raise refused(what, "leaves the project")
    if any(len(part.encode(errors="replace")) > _MAX_NAME for part in parts):
        raise refused(what, "holds a name that is too long")


def _resolved(path: Path, what: str) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError) as exc:
        raise refused(what, "cannot be followed") from exc
