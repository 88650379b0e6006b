"""Handshake-era sessions, as far as they need rows: ended ones, log levels, subscriptions.

A session's id is its state, so one without rows costs nothing. Rows are few, expire, and are read from memory. Of one
that is over, only that is remembered, until its id would have expired.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.errors import Fault, Kind
from gateway.state.database import Database
from gateway.state.ended import Ended

_KEPT_ROWS: Final = 100_000
_SUBSCRIPTIONS: Final = 256
_SWEEP_EVERY: Final = 600.0
_NEWS: Final = 60.0

_ANSWER_CHARS: Final = 256 * 1024

_Fact = Literal["ended", "log_level", "subscription", "answer"]
Answered = Callable[[str, str, str], None]
"""A session's digest, the id of our request to its client, and the client's answer as it was posted elsewhere."""


@dataclass(frozen=True, slots=True)
class _Session:
    expires: float
    log_level: str | None = None
    uris: frozenset[str] = field(default=frozenset[str]())


class Sessions:
    """Open it with `Sessions.open`. What it answers without `await` is at most a second behind other processes.

    Only the newest `kept_rows` rows are kept, so that no client can fill the memory by opening and ending sessions.
    """

    def __init__(
        self, database: Database, *, kept_rows: int = _KEPT_ROWS, clock: Callable[[], float] = time.time
    ) -> None:
        self._database = database
        self._kept_rows = kept_rows
        self._clock = clock
        self._sessions: dict[str, _Session] = {}
        self._ended = Ended(kept_rows, clock)
        self._sequence = 0
        self._next_sweep = clock()
        self._loading = asyncio.Lock()
        self._listeners: list[Answered] = []

    @classmethod
    async def open(cls, database: Database) -> "Sessions":
        sessions = cls(database)
        await database.follow(sessions.load)
        return sessions

    def ended(self, digest: str) -> bool:
        return digest in self._ended

    def log_level(self, digest: str) -> str | None:
        session = self._sessions.get(digest)
        return session.log_level if session is not None else None

    def subscriptions(self, digest: str) -> frozenset[str]:
        session = self._sessions.get(digest)
        return session.uris if session is not None else frozenset()

    async def end(self, digest: str, expires: float) -> None:
        async with self._database.transaction() as connection:
            await connection.execute(_FORGET, {"digest": digest})
            await self._put(connection, digest, "ended", "", "yes", expires)
        await self.load()

    async def set_log_level(self, digest: str, level: str, expires: float) -> None:
        async with self._database.transaction() as connection:
            await self._put(connection, digest, "log_level", "", level, expires)
        await self.load()

    async def subscribe(self, digest: str, uri: str, expires: float) -> None:
        """Raises `Fault(TOO_LARGE)` at the session's 257th subscription."""
        known = self.subscriptions(digest)
        if uri not in known and len(known) >= _SUBSCRIPTIONS:
            raise Fault(Kind.TOO_LARGE, f"A session has at most {_SUBSCRIPTIONS} subscriptions.")
        async with self._database.transaction() as connection:
            await self._put(connection, digest, "subscription", uri, "on", expires)
        await self.load()

    async def unsubscribe(self, digest: str, uri: str) -> None:
        async with self._database.transaction() as connection:
            # The row stays a while longer, because others learn only of rows, not of their absence.
            await self._put(connection, digest, "subscription", uri, "off", self._clock() + _NEWS)
        await self.load()

    async def answer(self, digest: str, id: str, value: str) -> None:
        """Leave an answer for the process that asked; one too large for a row is as good as none."""
        if len(value) > _ANSWER_CHARS:
            return
        async with self._database.transaction() as connection:
            await self._put(connection, digest, "answer", id, value, self._clock() + _NEWS)
        await self.load()

    def on_answer(self, listener: Answered) -> None:
        """Call `listener` with every answer that is left here, by any process, within a second."""
        self._listeners.append(listener)

    async def load(self) -> None:
        """Take in what was written since the last time, here or elsewhere."""
        async with self._loading:
            async with self._database.reading() as connection:
                rows = (await connection.execute(_NEWER, {"sequence": self._sequence})).all()
            for digest, fact, subject, value, expires, sequence in rows:
                self._take(digest, fact, subject, value, expires)
                self._sequence = sequence
            self._forget_expired()

    def _take(self, digest: str, fact: _Fact, subject: str, value: str, expires: float) -> None:
        if fact == "answer":
            for listener in self._listeners:
                listener(digest, subject, value)
            return
        known = self._sessions.pop(digest, None)
        if fact == "ended":
            self._ended.add(digest, expires)
            return
        if digest in self._ended:
            return
        session = _with(known or _Session(expires), fact, subject, value)
        # Put back last: the first of the dictionary is then the one whose rows are oldest.
        self._sessions[digest] = replace(session, expires=max(session.expires, expires))

    def _forget_expired(self) -> None:
        now = self._clock()
        if now >= self._next_sweep:
            self._next_sweep = now + _SWEEP_EVERY
            self._drop([digest for digest, session in self._sessions.items() if session.expires <= now])
        surplus = len(self._sessions) - self._kept_rows
        if surplus > 0:
            self._drop([digest for digest, _ in zip(self._sessions, range(surplus), strict=False)])

    def _drop(self, digests: Iterable[str]) -> None:
        for digest in digests:
            del self._sessions[digest]

    async def _put(
        self, connection: AsyncConnection, digest: str, fact: _Fact, subject: str, value: str, expires: float
    ) -> None:
        sequence: int = (await connection.execute(_NEXT)).scalar_one()
        row: dict[str, Any] = {
            "digest": digest,
            "fact": fact,
            "subject": subject,
            "value": value,
            "expires": expires,
            "sequence": sequence,
        }
        await connection.execute(_PUT, row)
        await connection.execute(_SWEEP, {"now": self._clock(), "oldest": sequence - self._kept_rows})


def _with(session: _Session, fact: _Fact, subject: str, value: str) -> _Session:
    match fact:
        case "log_level":
            return replace(session, log_level=value)
        case "subscription":
            uris = session.uris | {subject} if value == "on" else session.uris - {subject}
            return replace(session, uris=uris)
        case "ended" | "answer":
            return session


_NEXT = text("UPDATE session_sequence SET last = last + 1 RETURNING last")
_PUT = text(
    "INSERT INTO session_facts (digest, fact, subject, value, expires_at, sequence)"
    " VALUES (:digest, :fact, :subject, :value, :expires, :sequence)"
    " ON CONFLICT (digest, fact, subject) DO UPDATE"
    " SET value = excluded.value, expires_at = excluded.expires_at, sequence = excluded.sequence"
)
_FORGET = text("DELETE FROM session_facts WHERE digest = :digest")
_SWEEP = text("DELETE FROM session_facts WHERE expires_at <= :now OR sequence <= :oldest")
_NEWER = text(
    "SELECT digest, fact, subject, value, expires_at, sequence FROM session_facts"
    " WHERE sequence > :sequence ORDER BY sequence"
)
