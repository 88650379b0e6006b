"""Files that only the gateway's user can access, and names that are safe to use in paths and keys."""

import os
import re
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

from gateway.errors import Fault, Kind


def create_private(path: Path, content: bytes = b"") -> None:
    """Create the file with mode 0600 unless it exists. When several processes race, the first one's content wins.

    An existing file is never opened: closing it would release POSIX locks that this process holds on it.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.exists():
        return
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        # `link` is atomic and fails when the path exists.
        with suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink()
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,63}", re.ASCII)


def validate_name(name: str, subject: str) -> str:
    """Return the name. Raises `Fault(INVALID_INPUT)` unless it has only lower-case letters, digits and hyphens.

    `subject` says what is named, for the message.
    """
    if not _NAME.fullmatch(name):
        raise Fault(
            Kind.INVALID_INPUT,
            f"A {subject}'s name is 1 to 64 lower-case letters, digits and hyphens, and does not start with a hyphen.",
        )
    return name
