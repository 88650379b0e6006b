"""In-memory fakes of the stores that the protocol and the stages use."""

import time
from collections.abc import Callable

from gateway.stages.audit import Row


class FakeSessionStore:
    """An in-memory `SessionStore`."""

    def __init__(self) -> None:
        self.ended_sessions: set[str] = set()
        self.levels: dict[str, str] = {}
        self.uris: dict[str, frozenset[str]] = {}
        self.answers: list[tuple[str, str, str]] = []
        self.listeners: list[Callable[[str, str, str], None]] = []

    def is_ended(self, digest: str) -> bool:
        return digest in self.ended_sessions

    def log_level(self, digest: str) -> str | None:
        return self.levels.get(digest)

    def subscriptions(self, digest: str) -> frozenset[str]:
        return self.uris.get(digest, frozenset())

    async def end(self, digest: str, expires: float) -> None:
        assert expires > time.time()
        self.ended_sessions.add(digest)
        self.levels.pop(digest, None)
        self.uris.pop(digest, None)

    async def set_log_level(self, digest: str, level: str, expires: float) -> None:
        self.levels[digest] = level

    async def subscribe(self, digest: str, uri: str, expires: float) -> None:
        self.uris[digest] = self.subscriptions(digest) | {uri}

    async def load(self) -> None:
        """Do nothing: no other process writes."""

    async def unsubscribe(self, digest: str, uri: str) -> None:
        self.uris[digest] = self.subscriptions(digest) - {uri}

    async def add_answer(self, digest: str, id: str, value: str) -> None:
        self.answers.append((digest, id, value))

    def on_answer(self, listener: Callable[[str, str, str], None]) -> None:
        self.listeners.append(listener)


class FakeApprovals:
    """Records which approvals were used."""

    def __init__(self) -> None:
        self.redeemed: set[tuple[str, str]] = set()

    async def redeem(self, tenant: str, id: str) -> bool:
        first = (tenant, id) not in self.redeemed
        self.redeemed.add((tenant, id))
        return first


class FakeAuditLog:
    """An audit log that keeps its rows in memory."""

    def __init__(self, *, full: bool = False) -> None:
        self.rows: list[Row] = []
        self.is_full = full
        self.flushed = 0

        self.intents: list[int] = []
        """The number of the intent of each row, or 0."""

    def put(self, row: Row, intent: int = 0) -> int:
        self.rows.append(row)
        self.intents.append(intent)
        return len(self.rows)

    async def commit_intent(self, row: Row) -> int:
        self.flushed += 1
        return self.put(row)

    async def flush(self) -> None:
        self.flushed += 1
        self.is_full = False
