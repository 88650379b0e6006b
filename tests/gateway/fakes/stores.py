"""What the doors and stages keep, in memory."""

import time
from collections.abc import Callable

from gateway.stages.audit import Row


class FakeRows:
    """`SessionRows` in memory."""

    def __init__(self) -> None:
        self.over: set[str] = set()
        self.levels: dict[str, str] = {}
        self.uris: dict[str, frozenset[str]] = {}
        self.answers: list[tuple[str, str, str]] = []
        self.listeners: list[Callable[[str, str, str], None]] = []

    def ended(self, digest: str) -> bool:
        return digest in self.over

    def log_level(self, digest: str) -> str | None:
        return self.levels.get(digest)

    def subscriptions(self, digest: str) -> frozenset[str]:
        return self.uris.get(digest, frozenset())

    async def end(self, digest: str, expires: float) -> None:
        assert expires > time.time()
        self.over.add(digest)
        self.levels.pop(digest, None)
        self.uris.pop(digest, None)

    async def set_log_level(self, digest: str, level: str, expires: float) -> None:
        self.levels[digest] = level

    async def subscribe(self, digest: str, uri: str, expires: float) -> None:
        self.uris[digest] = self.subscriptions(digest) | {uri}

    async def load(self) -> None:
        """Nobody else writes."""

    async def unsubscribe(self, digest: str, uri: str) -> None:
        self.uris[digest] = self.subscriptions(digest) - {uri}

    async def answer(self, digest: str, id: str, value: str) -> None:
        self.answers.append((digest, id, value))

    def on_answer(self, listener: Callable[[str, str, str], None]) -> None:
        self.listeners.append(listener)


class FakeApprovals:
    """Which approvals were used."""

    def __init__(self) -> None:
        self.ids: set[tuple[str, str]] = set()

    async def use(self, tenant: str, id: str) -> bool:
        first = (tenant, id) not in self.ids
        self.ids.add((tenant, id))
        return first


class FakeLog:
    """Where audit rows go."""

    def __init__(self, *, full: bool = False) -> None:
        self.rows: list[Row] = []
        self.full = full
        self.flushed = 0

    def put(self, row: Row) -> None:
        self.rows.append(row)

    async def flush(self) -> None:
        self.flushed += 1
        self.full = False
