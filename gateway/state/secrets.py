"""Secrets that the gateway makes for itself: 32 random bytes in a file of its owner's alone."""

import os
import secrets
from pathlib import Path
from typing import Final

from gateway.errors import Fault, Kind
from gateway.state.files import create_private
from gateway.state.names import checked

_SIZE: Final = 32
_BEYOND_OWNER: Final = 0o777 & ~0o600


def load_secret(folder: Path, name: str) -> bytes:
    """The secret of that name, made on first use; every process that asks gets the same bytes.

    Raises `Fault(UNAVAILABLE)` when the file cannot be used, is not whole, or may be read by others.
    """
    path = folder / checked(name, "secret")
    try:
        create_private(path, secrets.token_bytes(_SIZE))
        return _read(path)
    except OSError as exc:
        raise Fault(
            Kind.UNAVAILABLE,
            f"The secret {name} cannot be read or made: its folder must belong to the gateway's user and have room.",
        ) from exc


def _read(path: Path) -> bytes:
    # The permissions are those of the file that is read, not of one put in its place.
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
        if os.fstat(file.fileno()).st_mode & _BEYOND_OWNER:
            raise Fault(Kind.UNAVAILABLE, f"The secret {path.name} may be read by others: set its mode to 0600.")
        secret = file.read(_SIZE + 1)
    if len(secret) != _SIZE:
        raise Fault(Kind.UNAVAILABLE, f"The secret {path.name} is not {_SIZE} bytes: restore it from a backup.")
    return secret
