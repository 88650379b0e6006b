"""Secrets of the gateway: 32 random bytes each, in a private file that the gateway creates, or in a mounted volume."""

import os
import secrets
from pathlib import Path
from typing import Final

from gateway.errors import Fault, Kind
from gateway.state.private_files import create_private, validate_name

_SIZE: Final = 32
_FORBIDDEN_MODE_BITS: Final = 0o777 & ~0o600
_FORBIDDEN_MOUNT_MODE_BITS: Final = 0o777 & ~0o440
_MOUNT_READ_ATTEMPTS: Final = 5
"""Attempts to read a mounted volume that is replaced while it is read."""


def load_secret(folder: Path, name: str) -> bytes:
    """Return the secret of that name. It is created on first use; every process gets the same bytes.

    The file must be accessible to its owner only. In a Kubernetes volume, root owns the file and the pod's group reads
    it; there, group read permission is allowed and write permission is not.

    Raises `Fault(UNAVAILABLE)` when the file cannot be used, has the wrong size, or is accessible to others.
    """
    path = folder / validate_name(name, "secret")
    try:
        create_private(path, secrets.token_bytes(_SIZE))
        return _read_mounted(path) if _is_mounted(path) else _read(path, None, _FORBIDDEN_MODE_BITS, "0600")
    except OSError as exc:
        raise Fault(
            Kind.UNAVAILABLE,
            f"The secret {name} cannot be read or created. Its folder must belong to the gateway's user, "
            "and the disk must have free space.",
        ) from exc


def _is_mounted(path: Path) -> bool:
    """Whether the path is a symbolic link in the form that the kubelet creates. No other link is followed."""
    return path.is_symlink() and os.readlink(path) == f"..data/{path.name}"


def _read_mounted(path: Path) -> bytes:
    """Read from a Kubernetes volume: NAME -> ..data/NAME, ..data -> ..VERSION. That folder is replaced atomically."""
    for attempt in range(_MOUNT_READ_ATTEMPTS):
        version = os.readlink(path.parent / "..data")
        if not version.startswith("..") or version == ".." or "/" in version:
            break
        try:
            folder = os.open(path.parent / version, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except FileNotFoundError:
            if attempt == _MOUNT_READ_ATTEMPTS - 1:
                raise
            continue  # replaced since the link was read
        try:
            return _read(path, folder, _FORBIDDEN_MOUNT_MODE_BITS, "0440 or 0400 (defaultMode)")
        finally:
            os.close(folder)
    raise Fault(Kind.UNAVAILABLE, f"The secret {path.name} links outside its folder. Mount it as a complete volume.")


def _read(path: Path, folder: int | None, forbidden: int, expected: str) -> bytes:
    # The mode is read from the open file, so that it cannot be swapped between the check and the read.
    source = path if folder is None else path.name
    with os.fdopen(os.open(source, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=folder), "rb") as file:
        if os.fstat(file.fileno()).st_mode & forbidden:
            raise Fault(Kind.UNAVAILABLE, f"The secret {path.name} may be read by others. Set its mode to {expected}.")
        secret = file.read(_SIZE + 1)
    if len(secret) != _SIZE:
        raise Fault(Kind.UNAVAILABLE, f"The secret {path.name} is not {_SIZE} bytes. Restore it from a backup.")
    return secret
