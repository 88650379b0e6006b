"""What is kept of a sign-in: one file for each server, below the user's own data folder, readable by nobody else."""

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

_LOOK_AGAIN: Final = 0.1
EARLY_SECONDS: Final = 30.0
"""A token is refreshed so long before it expires, or after nine tenths of a shorter life."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTokens:
    """A sign-in. `repr` shows no token."""

    access_token: str = field(repr=False)
    refresh_token: str | None = field(default=None, repr=False)
    scope: str = ""
    stale_at: float | None = None
    """When it should be refreshed; None if nobody said how long it lives."""
    client: Json = field(default_factory=dict[str, Any], repr=False)
    """The client as the authorization server knows it."""
    authorization_server: str | None = None
    resource: Json | None = None
    metadata: Json | None = None

    def stale(self, now: float) -> bool:
        return self.stale_at is not None and now >= self.stale_at


def stale_at(now: float, life: float | None) -> float | None:
    return None if life is None else now + max(life - EARLY_SECONDS, life * 0.9)


def data_folder() -> Path:
    match sys.platform:
        case "darwin":
            return Path.home() / "Library" / "Application Support" / "gatehouse"
        case _:
            return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "gatehouse"


class TokenStore:
    """The place of one server's sign-in."""

    def __init__(self, folder: Path, url: str) -> None:
        parts = urlsplit(url)
        server = f"{parts.scheme.lower()}://{parts.netloc.lower()}{parts.path.rstrip('/')}"
        digest = hashlib.sha256(server.encode()).hexdigest()[:16]
        # The name of the host is for whoever looks into the folder.
        self.file: Final = folder / f"{parts.hostname or 'server'}-{digest}.json"

    def read(self) -> StoredTokens | None:
        """None also for a file that says nothing useful."""
        try:
            return StoredTokens(**json.loads(self.file.read_bytes()))
        except (OSError, ValueError, TypeError):
            return None

    def write(self, kept: StoredTokens) -> None:
        """Whole or not at all."""
        self.file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor, name = tempfile.mkstemp(dir=self.file.parent, prefix=".")  # which is 0600
        try:
            with os.fdopen(descriptor, "w") as out:
                json.dump(asdict(kept), out)
            os.replace(name, self.file)
        except BaseException:
            os.unlink(name)
            raise

    @asynccontextmanager
    async def alone(self, what: str) -> AsyncGenerator[None]:
        """While no other process does the same: a refresh token is good once, and one window is enough."""
        self.file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(self.file.with_suffix(f".{what}"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            # Asked again and again: a thread that waits in the kernel could not be called off.
            while not _locked(descriptor):  # noqa: ASYNC110 - another process is waited for
                await asyncio.sleep(_LOOK_AGAIN)
            yield
        finally:
            os.close(descriptor)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
