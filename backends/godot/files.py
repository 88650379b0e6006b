"""File access inside a project.

Folders are opened one by one without following symbolic links, so a link created after the path check has no effect.
Writes are atomic.
"""

import errno
import os
import secrets
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from backends.godot.paths import DATA_FOLDER, Project, ProjectPath
from gateway.errors import Fault, Kind

MAX_READ: Final = 8 * 1024 * 1024
_SKIPPED_FOLDERS: Final = frozenset({".godot", ".git", ".import", DATA_FOLDER})
_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_DEPTH: Final = 32


def read(location: ProjectPath, label: str = "The file", limit: int = MAX_READ) -> bytes:
    """Return the file's content. Raises `Fault(TOO_LARGE)` above `limit` bytes; `label` names the file in errors."""
    with _open_parent(location, label) as folder:
        try:
            handle = os.open(
                location.path.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=folder
            )
        except OSError as exc:
            raise _to_fault(exc, location, label) from exc
        with os.fdopen(handle, "rb") as file:
            try:
                data = file.read(limit + 1)
            except OSError as exc:
                raise _to_fault(exc, location, label) from exc
    if len(data) > limit:
        raise Fault(Kind.TOO_LARGE, f"{label} {location.res} is larger than {limit} bytes.")
    return data


def read_text(location: ProjectPath, label: str = "The file") -> str:
    """Return the file as text. Bytes that are not UTF-8 survive a round trip through `write_text`."""
    return read(location, label).decode("utf-8", "surrogateescape")


def write(location: ProjectPath, data: bytes, *, overwrite: bool = True) -> int:
    """Write the file atomically, create missing folders, and return the size.

    Raises `Fault(INVALID_INPUT)` for an existing file when `overwrite` is false.
    """
    with _open_parent(location, "The file", create=True) as folder:
        if not overwrite and _exists(location.path.name, folder):
            raise already_exists(location)
        temporary = f".{secrets.token_hex(6)}.tmp"
        try:
            _write_temporary(temporary, data, folder)
            os.rename(temporary, location.path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError as exc:
            raise _to_fault(exc, location, "The file") from exc
        finally:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
    return len(data)


def write_text(location: ProjectPath, text: str, *, overwrite: bool = True) -> int:
    return write(location, text.encode("utf-8", "surrogateescape"), overwrite=overwrite)


def append(location: ProjectPath, data: bytes) -> int:
    """Append to the file, create it if missing, and return its new size."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with _open_parent(location, "The file", create=True) as folder:
        try:
            handle = os.open(location.path.name, flags, 0o600, dir_fd=folder)
        except OSError as exc:
            raise _to_fault(exc, location, "The file") from exc
        with os.fdopen(handle, "ab", buffering=0) as file:
            try:
                file.write(data)
            except OSError as exc:
                raise _to_fault(exc, location, "The file") from exc
            return file.tell()


def delete(location: ProjectPath, label: str = "The file") -> None:
    with _open_parent(location, label) as folder:
        try:
            os.unlink(location.path.name, dir_fd=folder)
        except OSError as exc:
            raise _to_fault(exc, location, label) from exc


def rename(location: ProjectPath, target: ProjectPath) -> None:
    """Rename a file. Raises `Fault(INVALID_INPUT)` when the target exists."""
    with (
        _open_parent(location, "The file") as source_folder,
        _open_parent(target, "The file", create=True) as target_folder,
    ):
        if _exists(target.path.name, target_folder):
            raise already_exists(target)
        try:
            os.rename(location.path.name, target.path.name, src_dir_fd=source_folder, dst_dir_fd=target_folder)
        except OSError as exc:
            raise _to_fault(exc, location, "The file") from exc


def make_folder(location: ProjectPath, *, parents: bool = True) -> None:
    if not parents and not location.path.parent.is_dir():
        raise Fault(Kind.NOT_FOUND, f"The folder above {location.res} does not exist.")
    with _open_parent(location, "The folder", create=True, parts=location.parts):
        pass


def exists(location: ProjectPath) -> bool:
    return location.path.exists()


def walk(
    project: Project, start: ProjectPath, suffixes: frozenset[str] | None, *, recursive: bool = True
) -> Iterator[ProjectPath]:
    """Yield the files below `start` sorted by name, without hidden folders, links and the engine's own folders."""
    if not start.path.is_dir():
        raise Fault(Kind.NOT_FOUND, f"There is no folder {start.res}.")
    for folder, folders, names in os.walk(start.path):
        depth = len(Path(folder).relative_to(start.path).parts)
        folders[:] = sorted(name for name in folders if name not in _SKIPPED_FOLDERS and not name.startswith("."))
        if not recursive or depth >= _MAX_DEPTH:
            folders.clear()
        for name in sorted(names):
            path = Path(folder, name)
            if (suffixes is None or path.suffix.lower() in suffixes) and not path.is_symlink():
                yield ProjectPath(project.root, path)


def already_exists(location: ProjectPath) -> Fault:
    """Build the fault for a file that must not be replaced: the path is an argument that does not fit."""
    return Fault(
        Kind.INVALID_INPUT,
        f"{location.res} already exists.",
        details={"exists": location.res},
        suggested_fix="Choose another path, or set overwrite if the tool has that parameter.",
    )


@contextmanager
def _open_parent(
    location: ProjectPath, label: str, *, create: bool = False, parts: tuple[str, ...] | None = None
) -> Generator[int, None, None]:
    """Open the parent folder of `location`, starting at the project root and without following links."""
    try:
        handle = os.open(location.root, _FOLDER_FLAGS)
    except OSError as exc:
        raise Fault(Kind.NOT_FOUND, "The project's folder no longer exists.") from exc
    try:
        for part in location.parts[:-1] if parts is None else parts:
            handle = _open_child(handle, part, location, label, create=create)
        yield handle
    finally:
        os.close(handle)


def _open_child(handle: int, part: str, location: ProjectPath, label: str, *, create: bool) -> int:
    try:
        if create:
            with suppress(FileExistsError):
                os.mkdir(part, 0o755, dir_fd=handle)
        child = os.open(part, _FOLDER_FLAGS, dir_fd=handle)
    except OSError as exc:
        raise _to_fault(exc, location, label) from exc
    os.close(handle)
    return child


def _write_temporary(name: str, data: bytes, folder: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(name, flags, 0o644, dir_fd=folder), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _exists(name: str, folder: int) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return False
    return True


def _to_fault(exc: OSError, location: ProjectPath, label: str) -> Fault:
    match exc.errno:
        case errno.ENOENT:
            return Fault(Kind.NOT_FOUND, f"{label} {location.res} does not exist.")
        case errno.ENOSPC | errno.EDQUOT | errno.EFBIG:
            return Fault(
                Kind.INTERNAL,
                f"{location.res} was not written: the disk is full.",
                suggested_fix="Free disk space and try again; nothing was changed.",
            )
        case errno.ELOOP | errno.ENOTDIR | errno.EACCES | errno.EPERM | errno.EROFS | errno.ENXIO:
            return Fault(Kind.DENIED, f"{label} {location.res} cannot be opened: access denied.")
        case errno.EISDIR:
            return Fault(Kind.INVALID_INPUT, f"{location.res} is a folder.")
        case _:
            return Fault(Kind.INTERNAL, f"{location.res} could not be read or written.")
