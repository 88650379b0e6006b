"""Users who sign in: with a password, kept as an argon2 hash, or in the local profile with a code from the terminal."""

import json
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError
from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.auth.revocations import Revocations
from gateway.auth.thread_pool import ThreadPool
from gateway.errors import Fault, Kind
from gateway.state.database import Database
from gateway.state.private_files import checked

_SUBJECT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,127}", re.ASCII)
_SHORTEST: Final = 10
_LONGEST: Final = 1024
_REVOKED_FOR: Final = 3660.0
"""Longer than an access token of ours can live."""


@dataclass(frozen=True, slots=True)
class User:
    tenant: str
    subject: str
    scopes: frozenset[str]
    """The most that a client may be given in this user's name."""
    groups: frozenset[str]
    has_password: bool
    created: float


class Users:
    """The users of all tenants, read from the database each time: a removed one is unknown at once."""

    def __init__(self, database: Database, revocations: Revocations, *, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._revocations = revocations
        self._clock = clock
        self._hasher = PasswordHasher()
        # Few: each takes a whole core and a good share of memory.
        self._threads = ThreadPool("passwords", 2, 64)
        self._nobody: str | None = None

    async def put(
        self, tenant: str, subject: str, password: str | None, scopes: Iterable[str], groups: Iterable[str] = ()
    ) -> User:
        """Make the user, or change one; another password ends what was signed in under the one before.
        Raises `Fault(INVALID_INPUT)`."""
        user = User(
            checked(tenant, "tenant"),
            _checked(subject),
            frozenset(scopes),
            frozenset(groups),
            password is not None,
            self._clock(),
        )
        hashed = None if password is None else await self._threads(self._hashed, password)
        row = {
            "tenant": user.tenant,
            "subject": user.subject,
            "password": hashed,
            "scopes": " ".join(sorted(user.scopes)),
            "member_of": json.dumps(sorted(user.groups)),
            "now": user.created,
        }
        async with self._database.transaction() as connection:
            before = (await connection.execute(_FIND, row)).one_or_none()
            await connection.execute(_PUT, row)
            ended = before is not None and (hashed is not None or before.password is not None)
            if ended:
                await self._end(connection, user.tenant, user.subject)
        if ended:
            await self._revocations.load()
        return user

    async def find(self, tenant: str, subject: str) -> User | None:
        row = await self._row(tenant, subject)
        return None if row is None else _from_row(row)

    async def exists(self, tenant: str, subject: str) -> bool:
        return await self._row(tenant, subject) is not None

    async def list(self, tenant: str | None = None) -> "list[User]":
        async with self._database.reading() as connection:
            rows = await connection.execute(_LIST)
        return [user for user in map(_from_row, rows) if tenant in (None, user.tenant)]

    async def remove(self, tenant: str, subject: str) -> bool:
        """With everything signed in under that name, here and in other processes within a second."""
        who = {"tenant": tenant, "subject": subject}
        async with self._database.transaction() as connection:
            removed = await connection.execute(_REMOVE, who)
            await self._end(connection, tenant, subject)
        await self._revocations.load()
        return removed.rowcount > 0

    async def _end(self, connection: AsyncConnection, tenant: str, subject: str) -> None:
        """All that was signed in under that name until now."""
        for statement in _THEIRS:
            await connection.execute(statement, {"tenant": tenant, "subject": subject})
        await self._revocations.add_within(connection, "user", _principal(tenant, subject), _REVOKED_FOR)

    async def check(self, tenant: str, subject: str, password: str) -> User | None:
        """The user, when the password is theirs; an unknown name takes as long as a wrong password."""
        row = await self._row(tenant, subject)
        known = None if row is None else row.password
        good = await self._threads(self._verified, known, password[:_LONGEST])
        return _from_row(row) if good and row is not None else None

    async def _row(self, tenant: str, subject: str) -> Row[Any] | None:
        async with self._database.reading() as connection:
            found = await connection.execute(_FIND, {"tenant": tenant, "subject": subject})
            return found.one_or_none()

    def _hashed(self, password: str) -> str:
        if not _SHORTEST <= len(password) <= _LONGEST:
            raise Fault(Kind.INVALID_INPUT, f"A password has at least {_SHORTEST} characters.")
        return self._hasher.hash(password)

    def _verified(self, known: str | None, password: str) -> bool:
        if self._nobody is None:
            self._nobody = self._hasher.hash("nobody has this password")
        try:
            return self._hasher.verify(known or self._nobody, password) and known is not None
        except (VerificationError, InvalidHashError):
            return False


def _checked(subject: str) -> str:
    if not _SUBJECT.fullmatch(subject):
        raise Fault(Kind.INVALID_INPUT, "A user's name is 1 to 128 of letters, digits and . _ @ + -.")
    return subject


def _principal(tenant: str, subject: str) -> str:
    return f"{tenant}/user:{subject}"


def _from_row(row: Row[Any]) -> User:
    return User(
        tenant=row.tenant,
        subject=row.subject,
        scopes=frozenset(row.scopes.split()),
        groups=frozenset(json.loads(row.member_of)),
        has_password=row.password is not None,
        created=row.created_at,
    )


_PUT = text(
    "INSERT INTO users (tenant, subject, password, scopes, member_of, created_at)"
    " VALUES (:tenant, :subject, :password, :scopes, :member_of, :now)"
    " ON CONFLICT (tenant, subject) DO UPDATE SET password = excluded.password, scopes = excluded.scopes,"
    " member_of = excluded.member_of"
)
_FIND = text("SELECT * FROM users WHERE tenant = :tenant AND subject = :subject")
_LIST = text("SELECT * FROM users ORDER BY tenant, subject")
_REMOVE = text("DELETE FROM users WHERE tenant = :tenant AND subject = :subject")
_THEIRS: Final = tuple(
    text(f"DELETE FROM {table} WHERE tenant = :tenant AND subject = :subject")  # noqa: S608 - our own tables
    for table in ("browser_sessions", "signin_codes", "oauth_codes", "refresh_tokens")
)
