"""Stores the tokens of a sign-in: one file per server in the user's data folder, readable only by the user."""

import asyncio
import fcntl
import hashlib
import json
import os
import sys
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from gateway.contract import Json

_LOCK_POLL_SECONDS: Final = 0.1
EARLY_SECONDS: Final = 30.0
"""A token is refreshed this long before it expires, or after nine tenths of a shorter lifetime."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTokens:
    """The tokens of a sign-in, and what is needed to refresh them. `repr` shows no token."""

    access_token: str = field(repr=False)
    refresh_token: str | None = field(default=None, repr=False)
    scope: str = ""
    stale_at: float | None = None
    """Time to refresh the token; None if its lifetime is unknown."""
    client: Json = field(default_factory=dict[str, Any], repr=False)
    """The registration of the client at the authorization server."""
    authorization_server: str | None = None
    resource: Json | None = None
    metadata: Json | None = None

    def is_stale(self, now: float) -> bool:
        return self.stale_at is not None and now >= self.stale_at


def stale_at(now: float, lifetime: float | None) -> float | None:
    return None if lifetime is None else now + max(lifetime - EARLY_SECONDS, lifetime * 0.9)


def data_folder() -> Path:
    match sys.platform:
        case "darwin":
            return Path.home() / "Library" / "Application Support" / "gatehouse"
        case _:
            return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "gatehouse"


class TokenStore:
    """The token file of one server."""

    def __init__(self, folder: Path, url: str) -> None:
        parts = urlsplit(url)
        server = f"{parts.scheme.lower()}://{parts.netloc.lower()}{parts.path.rstrip('/')}"
        digest = hashlib.sha256(server.encode()).hexdigest()[:16]
        # The host name makes the files recognisable.
        self.file: Final = folder / f"{parts.hostname or 'server'}-{digest}.json"

    def read(self) -> StoredTokens | None:
        """Read the tokens; None for a missing or invalid file."""
        try:
            return StoredTokens(**json.loads(self.file.read_bytes()))
        except (OSError, ValueError, TypeError):
            return None

    def write(self, stored: StoredTokens) -> None:
        """Replace the file atomically."""
        self.file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor, name = tempfile.mkstemp(dir=self.file.parent, prefix=".")  # creates the file with mode 0600
        try:
            with os.fdopen(descriptor, "w") as out:
                json.dump(asdict(stored), out)
            os.replace(name, self.file)
        except BaseException:
            os.unlink(name)
            raise

    @asynccontextmanager
    async def lock(self, name: str) -> AsyncGenerator[None]:
        """Hold a lock between processes: a refresh token is valid once, and one browser window is enough."""
        self.file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(self.file.with_suffix(f".{name}"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            # Polls: a thread that blocks in the kernel could not be cancelled.
            while not _try_lock(descriptor):  # noqa: ASYNC110 - waits for another process
                await asyncio.sleep(_LOCK_POLL_SECONDS)
            yield
        finally:
            os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
