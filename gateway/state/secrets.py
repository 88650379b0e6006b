"""Secrets that the gateway makes for itself, 32 random bytes in a file of its owner's alone, or is given by a mount."""

import os
import secrets
from pathlib import Path
from typing import Final

from gateway.errors import Fault, Kind
from gateway.state.private_files import checked, create_private

_SIZE: Final = 32
_BEYOND_OWNER: Final = 0o777 & ~0o600
_BEYOND_READERS: Final = 0o777 & ~0o440
_TURNS: Final = 5
"""How often a mount may be renewed while we read from it."""


def load_secret(folder: Path, name: str) -> bytes:
    """The secret of that name, made on first use; every process that asks gets the same bytes.

    A file must be its owner's alone. In a Kubernetes volume, which shows its present version by links, root owns it and
    the pod's group reads it: there a file that nobody else can read and nobody can write is taken.

    Raises `Fault(UNAVAILABLE)` when the file cannot be used, is not whole, or may be read by others.
    """
    path = folder / checked(name, "secret")
    try:
        create_private(path, secrets.token_bytes(_SIZE))
        return _mounted(path) if _is_mounted(path) else _read(path, None, _BEYOND_OWNER, "0600")
    except OSError as exc:
        raise Fault(
            Kind.UNAVAILABLE,
            f"The secret {name} cannot be read or made: its folder must belong to the gateway's user and have room.",
        ) from exc


def _is_mounted(path: Path) -> bool:
    """Whether it is a link exactly as the kubelet makes them; any other is somebody's, and is not followed."""
    return path.is_symlink() and os.readlink(path) == f"..data/{path.name}"


def _mounted(path: Path) -> bytes:
    """NAME -> ..data/NAME and ..data -> ..VERSION, a folder beside them that is replaced whole."""
    for turn in range(_TURNS):
        version = os.readlink(path.parent / "..data")
        if not version.startswith("..") or version == ".." or "/" in version:
            break
        try:
            folder = os.open(path.parent / version, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except FileNotFoundError:
            if turn == _TURNS - 1:
                raise
            continue  # replaced since the link was read
        try:
            return _read(path, folder, _BEYOND_READERS, "0440 or 0400 (defaultMode)")
        finally:
            os.close(folder)
    raise Fault(Kind.UNAVAILABLE, f"The secret {path.name} leads out of its folder: mount it as a whole volume.")


def _read(path: Path, folder: int | None, beyond: int, wanted: str) -> bytes:
    # The permissions are those of the file that is read, not of one put in its place.
    at = path if folder is None else path.name
    with os.fdopen(os.open(at, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=folder), "rb") as file:
        if os.fstat(file.fileno()).st_mode & beyond:
            raise Fault(Kind.UNAVAILABLE, f"The secret {path.name} may be read by others: set its mode to {wanted}.")
        secret = file.read(_SIZE + 1)
    if len(secret) != _SIZE:
        raise Fault(Kind.UNAVAILABLE, f"The secret {path.name} is not {_SIZE} bytes: restore it from a backup.")
    return secret
