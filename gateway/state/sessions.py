"""State of handshake-era MCP sessions that their ids do not hold: ends, log levels, subscriptions, answers.

A session without rows costs nothing. Rows expire and are read from memory. An ended session keeps one row until its id
expires. A session's digest is its tenant, a colon and 32 hex digits. Limits apply per tenant, so one tenant cannot
evict another tenant's rows. `gateway.protocol.sessions` uses this module.
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
from gateway.state.changes import Keys
from gateway.state.database import Database

_MAX_ENDED: Final = 100_000
_SUFFIX_LENGTH: Final = 33
"""Length of the colon and the hex digits at the end of a digest."""
_MAX_SUBSCRIPTIONS: Final = 256
_SWEEP_INTERVAL: Final = 600.0
_NOTICE_SECONDS: Final = 60.0
"""Lifetime of rows that only announce something to other processes."""
_MAX_ANSWER_CHARS: Final = 256 * 1024
_HASH_MASK: Final = (1 << 64) - 1
_MIN_SLOTS: Final = 64

_Fact = Literal["ended", "log_level", "subscription", "answer"]
AnswerListener = Callable[[str, str, str], None]
"""Called with a session's digest, the id of the gateway's request to the client, and the client's encoded answer."""


@dataclass(frozen=True, slots=True)
class _Session:
    expires: float
    log_level: str | None = None
    uris: frozenset[str] = field(default=frozenset[str]())

    @property
    def facts(self) -> int:
        return 1 + len(self.uris)


class SessionRows:
    """Session facts in the database. Open it with `SessionRows.open`.

    The synchronous methods read from memory, which is at most a second behind other processes. For each tenant, the
    newest `max_ended` ended sessions are kept, and a quarter as many facts of each other kind. This bounds the memory
    that a client can use by opening and ending sessions.
    """

    def __init__(
        self, database: Database, *, max_ended: int = _MAX_ENDED, clock: Callable[[], float] = time.time
    ) -> None:
        self._database = database
        self._max_ended = max_ended
        self._clock = clock
        self._max_facts = max(1, max_ended // 4)
        self._sessions: dict[str, _Session] = {}
        self._fact_counts: Counter[str] = Counter()
        """Number of facts in memory, by tenant."""
        self._over_limit: set[str] = set()
        self._ended: dict[str, EndedSessions] = {}
        self._writes: Counter[tuple[str, _Fact]] = Counter()
        self._sequence = 0
        self._next_sweep = clock()
        self._loading = asyncio.Lock()
        self._listeners: list[AnswerListener] = []

    @classmethod
    async def open(cls, database: Database) -> "SessionRows":
        sessions = cls(database)
        await database.follow("session_facts", sessions.load)
        return sessions

    def is_ended(self, digest: str) -> bool:
        ended = self._ended.get(digest[:-_SUFFIX_LENGTH])
        return ended is not None and digest in ended

    def log_level(self, digest: str) -> str | None:
        session = self._sessions.get(digest)
        return session.log_level if session is not None else None

    def subscriptions(self, digest: str) -> frozenset[str]:
        session = self._sessions.get(digest)
        return session.uris if session is not None else frozenset()

    async def end(self, digest: str, expires: float) -> None:
        async with self._database.transaction() as connection:
            await connection.execute(_DELETE_SESSION, {"digest": digest})
            await self._save_fact(connection, digest, "ended", "", "yes", expires)
        await self.load()

    async def set_log_level(self, digest: str, level: str, expires: float) -> None:
        async with self._database.transaction() as connection:
            await self._save_fact(connection, digest, "log_level", "", level, expires)
        await self.load()

    async def subscribe(self, digest: str, uri: str, expires: float) -> None:
        """Raises `Fault(TOO_LARGE)` at the session's 257th subscription."""
        known = self.subscriptions(digest)
        if uri not in known and len(known) >= _MAX_SUBSCRIPTIONS:
            raise Fault(Kind.TOO_LARGE, f"A session has at most {_MAX_SUBSCRIPTIONS} subscriptions.")
        async with self._database.transaction() as connection:
            await self._save_fact(connection, digest, "subscription", uri, "on", expires)
        await self.load()

    async def unsubscribe(self, digest: str, uri: str) -> None:
        async with self._database.transaction() as connection:
            # The row stays for a while: other processes see new rows, not deletions.
            await self._save_fact(connection, digest, "subscription", uri, "off", self._clock() + _NOTICE_SECONDS)
        await self.load()

    async def add_answer(self, digest: str, id: str, value: str) -> None:
        """Store a client's answer for the process that sent the request. An answer that is too large is dropped."""
        if len(value) > _MAX_ANSWER_CHARS:
            return
        async with self._database.transaction() as connection:
            await self._save_fact(connection, digest, "answer", id, value, self._clock() + _NOTICE_SECONDS)
        await self.load()

    def on_answer(self, listener: AnswerListener) -> None:
        """Call `listener` with each stored answer of any process, within a second."""
        self._listeners.append(listener)

    async def load(self, _keys: Keys = None) -> None:
        """Read the rows that any process has written since the last load; their sequence numbers tell which."""
        async with self._loading:
            async with self._database.reading() as connection:
                rows = (await connection.execute(_SELECT_NEWER, {"sequence": self._sequence})).all()
            for digest, fact, subject, value, expires, sequence in rows:
                self._take(digest, fact, subject, value, expires)
                self._sequence = sequence
            self._evict_expired()

    def _take(self, digest: str, fact: _Fact, subject: str, value: str, expires: float) -> None:
        if fact == "answer":
            for listener in self._listeners:
                listener(digest, subject, value)
            return
        tenant = digest[:-_SUFFIX_LENGTH]
        known = self._remove(digest)
        if fact == "ended":
            ended = self._ended.get(tenant)
            if ended is None:
                ended = self._ended[tenant] = EndedSessions(self._max_ended, self._clock)
            ended.add(digest, expires)
            return
        if self.is_ended(digest):
            return
        session = _with_fact(known or _Session(expires), fact, subject, value)
        # Inserted at the end, so that the dictionary is ordered by the age of the last row.
        self._sessions[digest] = replace(session, expires=max(session.expires, expires))
        self._fact_counts[tenant] += session.facts
        if self._fact_counts[tenant] > self._max_facts:
            self._over_limit.add(tenant)

    def _remove(self, digest: str) -> _Session | None:
        session = self._sessions.pop(digest, None)
        if session is not None:
            self._fact_counts[digest[:-_SUFFIX_LENGTH]] -= session.facts
        return session

    def _evict_expired(self) -> None:
        now = self._clock()
        if now >= self._next_sweep:
            self._next_sweep = now + _SWEEP_INTERVAL
            self._remove_all([digest for digest, session in self._sessions.items() if session.expires <= now])
        while self._over_limit:
            self._evict_oldest(self._over_limit.pop())

    def _evict_oldest(self, tenant: str) -> None:
        """Evict the tenant's oldest sessions down to 99 % of the limit, so that not every write evicts."""
        target = self._max_facts - self._max_facts // 100
        for digest in [each for each in self._sessions if each[:-_SUFFIX_LENGTH] == tenant]:
            if self._fact_counts[tenant] <= target:
                break
            self._remove(digest)

    def _remove_all(self, digests: Iterable[str]) -> None:
        for digest in digests:
            self._remove(digest)

    async def _save_fact(
        self, connection: AsyncConnection, digest: str, fact: _Fact, subject: str, value: str, expires: float
    ) -> None:
        sequence: int = (await connection.execute(_NEXT_SEQUENCE)).scalar_one()
        row: dict[str, Any] = {
            "digest": digest,
            "fact": fact,
            "subject": subject,
            "value": value,
            "expires": expires,
            "sequence": sequence,
        }
        await connection.execute(_UPSERT, row)
        await connection.execute(_DELETE_EXPIRED, {"now": self._clock()})
        if fact != "answer":  # answers expire within a minute, and each belongs to a request of the gateway
            await self._delete_surplus(connection, digest[:-_SUFFIX_LENGTH], fact)

    async def _delete_surplus(self, connection: AsyncConnection, tenant: str, fact: _Fact) -> None:
        """Delete a tenant's surplus rows of one kind. Runs once per `limit / 100` writes, because it scans all rows."""
        limit = self._max_ended if fact == "ended" else self._max_facts
        self._writes[(tenant, fact)] += 1
        if self._writes[(tenant, fact)] > limit // 100:
            del self._writes[(tenant, fact)]
            parameters = {"fact": fact, "tenant": tenant, "digits": _SUFFIX_LENGTH, "maximum": limit}
            await connection.execute(_DELETE_SURPLUS, parameters)


class EndedSessions:
    """A compact set of the newest `capacity` names, each held until it expires. About 30 bytes per name.

    It stores a 64-bit hash of each name. With 100,000 names, the odds of a false match are about 1 in 10^14.
    """

    def __init__(self, capacity: int, clock: Callable[[], float]) -> None:
        self._capacity = capacity
        self._clock = clock
        # In order of insertion. Expired and surplus entries stay until the table is rebuilt.
        self._hashes = array("Q")
        self._expires = array("d")
        self._table = _new_table(_MIN_SLOTS)
        """Open-addressing table of 1-based positions in `_hashes`; 0 marks a free slot."""

    def add(self, name: str, expires: float) -> None:
        if 2 * len(self._hashes) >= len(self._table):
            self._rebuild()
        self._insert(hash(name) & _HASH_MASK, expires)

    def __contains__(self, name: str) -> bool:
        name_hash, table = hash(name) & _HASH_MASK, self._table
        last = len(table) - 1
        slot = name_hash & last
        while position := table[slot]:
            if self._hashes[position - 1] == name_hash and self._holds(position - 1):
                return True
            slot = slot + 1 & last
        return False

    def _holds(self, position: int) -> bool:
        return position >= len(self._hashes) - self._capacity and self._expires[position] > self._clock()

    def _insert(self, name_hash: int, expires: float) -> None:
        self._hashes.append(name_hash)
        self._expires.append(expires)
        last = len(self._table) - 1
        slot = name_hash & last
        while self._table[slot]:
            slot = slot + 1 & last
        self._table[slot] = len(self._hashes)

    def _rebuild(self) -> None:
        """Rebuild the table without dropped entries, with space for as many entries again."""
        held = array("I", (position for position in range(len(self._hashes)) if self._holds(position)))
        hashes, expires = self._hashes, self._expires
        self._hashes, self._expires = array("Q"), array("d")
        self._table = _new_table(max(_MIN_SLOTS, 1 << (4 * len(held)).bit_length()))
        for position in held:
            self._insert(hashes[position], expires[position])


def _new_table(slots: int) -> "array[int]":
    """Return an empty table. `slots` is a power of two."""
    return array("I", bytes(4 * slots))


def _with_fact(session: _Session, fact: _Fact, subject: str, value: str) -> _Session:
    match fact:
        case "log_level":
            return replace(session, log_level=value)
        case "subscription":
            uris = session.uris | {subject} if value == "on" else session.uris - {subject}
            return replace(session, uris=uris)
        case "ended" | "answer":
            return session


_NEXT_SEQUENCE = text("UPDATE session_sequence SET last = last + 1 RETURNING last")
_UPSERT = text(
    "INSERT INTO session_facts (digest, fact, subject, value, expires_at, sequence)"
    " VALUES (:digest, :fact, :subject, :value, :expires, :sequence)"
    " ON CONFLICT (digest, fact, subject) DO UPDATE"
    " SET value = excluded.value, expires_at = excluded.expires_at, sequence = excluded.sequence"
)
_DELETE_SESSION = text("DELETE FROM session_facts WHERE digest = :digest")
_DELETE_EXPIRED = text("DELETE FROM session_facts WHERE expires_at <= :now")
_OF_TENANT: Final = (
    " FROM session_facts WHERE fact = :fact AND CASE WHEN length(digest) > :digits"
    " THEN substr(digest, 1, length(digest) - :digits) ELSE '' END = :tenant"
)
_DELETE_SURPLUS = text(
    f"DELETE{_OF_TENANT} AND sequence <= (SELECT sequence{_OF_TENANT} ORDER BY sequence DESC LIMIT 1 OFFSET :maximum)"
)
_SELECT_NEWER = text(
    "SELECT digest, fact, subject, value, expires_at, sequence FROM session_facts"
    " WHERE sequence > :sequence ORDER BY sequence"
)
