"""Which sessions are over: a set of names that costs some thirty bytes each, for there may be very many.

Handshake-era sessions, as far as they need rows: ended ones, log levels, subscriptions.

A session's id is its state, so one without rows costs nothing. Rows are few, expire, and are read from memory. Of one
that is over, only that is remembered, until its id would have expired. A session is named by its tenant, a colon and 32
hex digits; what is kept of one tenant's sessions never makes room for another's.
"""

import asyncio
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.errors import Fault, Kind
from gateway.state.database import Database

_BITS: Final = (1 << 64) - 1

_ROOM: Final = 64


class EndedSessions:
    """The newest `most` names, each until it expires.

    Of a name only its hash of 64 bits is held: among 100,000 of them, another is taken for one with odds of 1 in 10^14.
    """

    def __init__(self, most: int, clock: Callable[[], float]) -> None:
        self._most = most
        self._clock = clock
        # In the order they came. What is no longer held stays in place until the table is made anew.
        self._marks = array("Q")
        self._expires = array("d")
        self._table = _empty(_ROOM)
        """Open addressing: where a mark is in `_marks`, counted from one; 0 is a free place."""

    def add(self, name: str, expires: float) -> None:
        if 2 * len(self._marks) >= len(self._table):
            self._renew()
        self._put(hash(name) & _BITS, expires)

    def __contains__(self, name: str) -> bool:
        mark, table = hash(name) & _BITS, self._table
        last = len(table) - 1
        place = mark & last
        while at := table[place]:
            if self._marks[at - 1] == mark and self._holds(at - 1):
                return True
            place = place + 1 & last
        return False

    def _holds(self, at: int) -> bool:
        return at >= len(self._marks) - self._most and self._expires[at] > self._clock()

    def _put(self, mark: int, expires: float) -> None:
        self._marks.append(mark)
        self._expires.append(expires)
        last = len(self._table) - 1
        place = mark & last
        while self._table[place]:
            place = place + 1 & last
        self._table[place] = len(self._marks)

    def _renew(self) -> None:
        """With room for as many again as are held."""
        held = array("I", (at for at in range(len(self._marks)) if self._holds(at)))
        marks, expires = self._marks, self._expires
        self._marks, self._expires = array("Q"), array("d")
        self._table = _empty(max(_ROOM, 1 << (4 * len(held)).bit_length()))
        for at in held:
            self._put(marks[at], expires[at])


def _empty(places: int) -> "array[int]":
    """A power of two of them."""
    return array("I", bytes(4 * places))


_KEPT_ROWS: Final = 100_000

_DIGITS: Final = 33

"""The colon and what comes after it."""

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

    @property
    def facts(self) -> int:
        return 1 + len(self.uris)


class SessionRows:
    """Open it with `Sessions.open`. What it answers without `await` is at most a second behind other processes.

    Of each tenant the newest `kept_rows` ended sessions are kept, and a quarter as many facts of each other kind: no
    client can fill the memory by opening and ending sessions.
    """

    def __init__(
        self, database: Database, *, kept_rows: int = _KEPT_ROWS, clock: Callable[[], float] = time.time
    ) -> None:
        self._database = database
        self._kept_rows = kept_rows
        self._clock = clock
        self._kept_facts = max(1, kept_rows // 4)
        self._sessions: dict[str, _Session] = {}
        self._facts: Counter[str] = Counter()
        """How many are in memory, by tenant."""
        self._crowded: set[str] = set()
        self._ended: dict[str, EndedSessions] = {}
        self._puts: Counter[tuple[str, _Fact]] = Counter()
        self._sequence = 0
        self._next_sweep = clock()
        self._loading = asyncio.Lock()
        self._listeners: list[Answered] = []

    @classmethod
    async def open(cls, database: Database) -> "SessionRows":
        sessions = cls(database)
        await database.follow(sessions.load)
        return sessions

    def ended(self, digest: str) -> bool:
        ended = self._ended.get(digest[:-_DIGITS])
        return ended is not None and digest in ended

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
        tenant = digest[:-_DIGITS]
        known = self._pop(digest)
        if fact == "ended":
            ended = self._ended.get(tenant)
            if ended is None:
                ended = self._ended[tenant] = EndedSessions(self._kept_rows, self._clock)
            ended.add(digest, expires)
            return
        if self.ended(digest):
            return
        session = _with(known or _Session(expires), fact, subject, value)
        # Put back last: the first of the dictionary is then the one whose rows are oldest.
        self._sessions[digest] = replace(session, expires=max(session.expires, expires))
        self._facts[tenant] += session.facts
        if self._facts[tenant] > self._kept_facts:
            self._crowded.add(tenant)

    def _pop(self, digest: str) -> _Session | None:
        session = self._sessions.pop(digest, None)
        if session is not None:
            self._facts[digest[:-_DIGITS]] -= session.facts
        return session

    def _forget_expired(self) -> None:
        now = self._clock()
        if now >= self._next_sweep:
            self._next_sweep = now + _SWEEP_EVERY
            self._drop([digest for digest, session in self._sessions.items() if session.expires <= now])
        while self._crowded:
            self._make_room(self._crowded.pop())

    def _make_room(self, tenant: str) -> None:
        """The oldest go, and a few more, so that it is not looked for them each time."""
        enough = self._kept_facts - self._kept_facts // 100
        for digest in [each for each in self._sessions if each[:-_DIGITS] == tenant]:
            if self._facts[tenant] <= enough:
                break
            self._pop(digest)

    def _drop(self, digests: Iterable[str]) -> None:
        for digest in digests:
            self._pop(digest)

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
        await connection.execute(_SWEEP, {"now": self._clock()})
        if fact != "answer":  # those expire within a minute, and only what was asked is answered
            await self._sweep_surplus(connection, digest[:-_DIGITS], fact)

    async def _sweep_surplus(self, connection: AsyncConnection, tenant: str, fact: _Fact) -> None:
        """Of one tenant and kind, once in a hundredth of what is kept: it takes a look at all of them."""
        kept = self._kept_rows if fact == "ended" else self._kept_facts
        self._puts[(tenant, fact)] += 1
        if self._puts[(tenant, fact)] > kept // 100:
            del self._puts[(tenant, fact)]
            about = {"fact": fact, "tenant": tenant, "digits": _DIGITS, "kept": kept}
            await connection.execute(_SWEEP_SURPLUS, about)


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

_SWEEP = text("DELETE FROM session_facts WHERE expires_at <= :now")

_OF_TENANT: Final = (
    " FROM session_facts WHERE fact = :fact AND CASE WHEN length(digest) > :digits"
    " THEN substr(digest, 1, length(digest) - :digits) ELSE '' END = :tenant"
)

_SWEEP_SURPLUS = text(
    f"DELETE{_OF_TENANT} AND sequence <= (SELECT sequence{_OF_TENANT} ORDER BY sequence DESC LIMIT 1 OFFSET :kept)"
)

_NEWER = text(
    "SELECT digest, fact, subject, value, expires_at, sequence FROM session_facts"
    " WHERE sequence > :sequence ORDER BY sequence"
)
