"""Files that belong to the gateway's user alone.

Names that become part of paths and keys: nothing in them can leave a folder.
"""

import os
import re
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

from gateway.errors import Fault, Kind


def create_private(path: Path, content: bytes = b"") -> None:
    """Make the file, mode 0600, unless it exists; of several processes the first one's content stays.

    An existing file is never opened: closing it again would take away the locks of whoever in this process uses it.
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
        # A link appears whole, and only where nothing is.
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


def checked(name: str, what: str) -> str:
    """The name itself. Raises `Fault(INVALID_INPUT)` unless it is lower-case letters, digits and hyphens."""
    if not _NAME.fullmatch(name):
        raise Fault(
            Kind.INVALID_INPUT,
            f"A {what}'s name is 1 to 64 lower-case letters, digits and hyphens, and does not start with a hyphen.",
        )
    return name
