"""Reading and writing inside a project. Folders are walked one by one without following links, so that a link made
after a path was checked leads nowhere; what is written appears whole or not at all."""

import errno
import os
import secrets
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from backends.godot.paths import OURS, Place, Project
from gateway.errors import Fault, Kind

MAX_READ: Final = 8 * 1024 * 1024
_SKIPPED: Final = frozenset({".godot", ".git", ".import", OURS})
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_DEPTH: Final = 32


def read(place: Place, what: str = "The file", limit: int = MAX_READ) -> bytes:
    with _parent(place, what) as folder:
        try:
            handle = os.open(place.path.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=folder)
        except OSError as exc:
            raise _fault(exc, place, what) from exc
        with os.fdopen(handle, "rb") as file:
            try:
                data = file.read(limit + 1)
            except OSError as exc:
                raise _fault(exc, place, what) from exc
    if len(data) > limit:
        raise Fault(Kind.TOO_LARGE, f"{what} {place.res} is larger than {limit} bytes.")
    return data


def read_text(place: Place, what: str = "The file") -> str:
    """Bytes that are no UTF-8 survive a round trip through `write_text`."""
    return read(place, what).decode("utf-8", "surrogateescape")


def write(place: Place, data: bytes, *, overwrite: bool = True) -> int:
    """Its size. The folders above it are made; with `overwrite` false an existing file is refused."""
    with _parent(place, "The file", make=True) as folder:
        if not overwrite and _exists(place.path.name, folder):
            raise already(place)
        scratch = f".{secrets.token_hex(6)}.tmp"
        try:
            _write_scratch(scratch, data, folder)
            os.rename(scratch, place.path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError as exc:
            raise _fault(exc, place, "The file") from exc
        finally:
            with suppress(OSError):
                os.unlink(scratch, dir_fd=folder)
    return len(data)


def write_text(place: Place, text: str, *, overwrite: bool = True) -> int:
    return write(place, text.encode("utf-8", "surrogateescape"), overwrite=overwrite)


def append(place: Place, data: bytes) -> int:
    """Its size afterwards."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with _parent(place, "The file", make=True) as folder:
        try:
            handle = os.open(place.path.name, flags, 0o600, dir_fd=folder)
        except OSError as exc:
            raise _fault(exc, place, "The file") from exc
        with os.fdopen(handle, "ab", buffering=0) as file:
            try:
                file.write(data)
            except OSError as exc:
                raise _fault(exc, place, "The file") from exc
            return file.tell()


def delete(place: Place, what: str = "The file") -> None:
    with _parent(place, what) as folder:
        try:
            os.unlink(place.path.name, dir_fd=folder)
        except OSError as exc:
            raise _fault(exc, place, what) from exc


def rename(place: Place, to: Place) -> None:
    """Refuses to replace anything."""
    with _parent(place, "The file") as here, _parent(to, "The file", make=True) as there:
        if _exists(to.path.name, there):
            raise already(to)
        try:
            os.rename(place.path.name, to.path.name, src_dir_fd=here, dst_dir_fd=there)
        except OSError as exc:
            raise _fault(exc, place, "The file") from exc


def make_folder(place: Place, *, parents: bool = True) -> None:
    if not parents and not place.path.parent.is_dir():
        raise Fault(Kind.NOT_FOUND, f"The folder above {place.res} does not exist.")
    with _parent(place, "The folder", make=True, parts=place.parts):
        pass


def exists(place: Place) -> bool:
    return place.path.exists()


def walk(project: Project, start: Place, suffixes: frozenset[str] | None, *, recursive: bool = True) -> Iterator[Place]:
    """The files below `start` in order of name; hidden folders, links and the engine's own folders are left out."""
    if not start.path.is_dir():
        raise Fault(Kind.NOT_FOUND, f"There is no folder {start.res}.")
    for folder, folders, names in os.walk(start.path):
        depth = len(Path(folder).relative_to(start.path).parts)
        folders[:] = sorted(name for name in folders if name not in _SKIPPED and not name.startswith("."))
        if not recursive or depth >= _MAX_DEPTH:
            folders.clear()
        for name in sorted(names):
            path = Path(folder, name)
            if (suffixes is None or path.suffix.lower() in suffixes) and not path.is_symlink():
                yield Place(project.root, path)


def already(place: Place) -> Fault:
    return Fault(
        Kind.DENIED,
        f"{place.res} exists already.",
        suggested_fix="Choose another path, or say overwrite where the tool has it.",
    )


@contextmanager
def _parent(
    place: Place, what: str, *, make: bool = False, parts: tuple[str, ...] | None = None
) -> Generator[int, None, None]:
    """The folder a place lies in, reached from the project's own without following a link."""
    try:
        handle = os.open(place.root, _FOLDER)
    except OSError as exc:
        raise Fault(Kind.NOT_FOUND, "The project's folder is gone.") from exc
    try:
        for part in place.parts[:-1] if parts is None else parts:
            handle = _step(handle, part, place, what, make=make)
        yield handle
    finally:
        os.close(handle)


def _step(handle: int, part: str, place: Place, what: str, *, make: bool) -> int:
    try:
        if make:
            with suppress(FileExistsError):
                os.mkdir(part, 0o755, dir_fd=handle)
        below = os.open(part, _FOLDER, dir_fd=handle)
    except OSError as exc:
        raise _fault(exc, place, what) from exc
    os.close(handle)
    return below


def _write_scratch(name: str, data: bytes, folder: int) -> None:
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


def _fault(exc: OSError, place: Place, what: str) -> Fault:
    match exc.errno:
        case errno.ENOENT:
            return Fault(Kind.NOT_FOUND, f"{what} {place.res} does not exist.")
        case errno.ENOSPC | errno.EDQUOT | errno.EFBIG:
            return Fault(
                Kind.INTERNAL,
                f"{place.res} was not written: there is no room left on the disk.",
                suggested_fix="Free some space; nothing was changed.",
            )
        case errno.ELOOP | errno.ENOTDIR | errno.EACCES | errno.EPERM | errno.EROFS | errno.ENXIO:
            return Fault(Kind.DENIED, f"{what} {place.res} may not be opened.")
        case errno.EISDIR:
            return Fault(Kind.INVALID_INPUT, f"{place.res} is a folder.")
        case _:
            return Fault(Kind.INTERNAL, f"{place.res} could not be read or written.")
