"""Users of the embedded authorization server.

They sign in with a password, stored as an argon2 hash, or on a loopback gateway with a one-time code.
"""

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
from gateway.state.approval_rows import erase_principal
from gateway.state.database import Database
from gateway.state.private_files import validate_name

LOCAL_OWNER: Final = ("default", "owner")
"""Tenant and subject of the user who signs in with a code on a gateway that listens on loopback only."""
_SUBJECT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,127}", re.ASCII)
_MIN_PASSWORD_CHARS: Final = 10
_MAX_PASSWORD_CHARS: Final = 1024
_REVOCATION_SECONDS: Final = 3660.0
"""Longer than the lifetime of an access token."""


@dataclass(frozen=True, slots=True)
class User:
    tenant: str
    subject: str
    scopes: frozenset[str]
    """Maximum scopes of a token issued for this user."""
    groups: frozenset[str]
    has_password: bool
    created: float
    suspended: bool = False
    """Whether an operator suspended the user."""
    refused: bool = False
    """Whether the identity provider refused the user at the last check."""
    valid_until: float | None = None
    """When access ends unless the identity provider confirms the user again; None for a local user."""

    def is_active(self, now: float) -> bool:
        confirmed = self.valid_until is None or self.valid_until > now
        return confirmed and not self.suspended and not self.refused


class Users:
    """Users of all tenants. Every lookup reads the database, so a removed user is unknown at once."""

    def __init__(self, database: Database, revocations: Revocations, *, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._revocations = revocations
        self._clock = clock
        self._hasher = PasswordHasher()
        # Hashing a password occupies a core and much memory.
        self._threads = ThreadPool("passwords", 2, 64)
        self._dummy_hash: str | None = None

    async def put(
        self, tenant: str, subject: str, password: str | None, scopes: Iterable[str], groups: Iterable[str] = ()
    ) -> User:
        """Create or update a user. A changed password ends all sessions and revokes all tokens of the user.

        Raises `Fault(INVALID_INPUT)`.
        """
        user = User(
            validate_name(tenant, "tenant"),
            _validate_subject(subject),
            frozenset(scopes),
            frozenset(groups),
            password is not None,
            self._clock(),
        )
        password_hash = None if password is None else await self._threads(self._hash, password)
        row = {
            "tenant": user.tenant,
            "subject": user.subject,
            "password": password_hash,
            "scopes": " ".join(sorted(user.scopes)),
            "member_of": json.dumps(sorted(user.groups)),
            "now": user.created,
        }
        async with self._database.transaction() as connection:
            before = (await connection.execute(_FIND, row)).one_or_none()
            await connection.execute(_UPSERT, row)
            revoked: frozenset[str] = frozenset()
            if before is not None and (password_hash is not None or before.password is not None):
                revoked = await self.end_sessions_in_transaction(connection, user.tenant, user.subject)
        if revoked:
            await self._revocations.load(revoked)
        return user

    async def find(self, tenant: str, subject: str) -> User | None:
        """Return an active user; None if the user does not exist, is suspended or was refused."""
        async with self._database.reading() as connection:
            return await self.find_in_transaction(connection, tenant, subject)

    async def find_in_transaction(self, connection: AsyncConnection, tenant: str, subject: str) -> User | None:
        row = (await connection.execute(_FIND, {"tenant": tenant, "subject": subject})).one_or_none()
        user = None if row is None else user_from_row(row)
        return user if user is not None and user.is_active(self._clock()) else None

    async def is_active(self, tenant: str, subject: str) -> bool:
        return await self.find(tenant, subject) is not None

    async def exists(self, tenant: str, subject: str) -> bool:
        return await self._row(tenant, subject) is not None

    async def list(self, tenant: str | None = None) -> "list[User]":
        async with self._database.reading() as connection:
            rows = await connection.execute(_LIST)
        return [user for user in map(user_from_row, rows) if tenant in (None, user.tenant)]

    async def remove(self, tenant: str, subject: str) -> bool:
        """Remove a user with all that they own. Takes effect in all processes within a second."""
        async with self._database.transaction() as connection:
            known = (await connection.execute(_FIND, {"tenant": tenant, "subject": subject})).one_or_none()
            revoked = await self.remove_in_transaction(connection, tenant, subject)
        await self._revocations.load(revoked)
        return known is not None

    async def remove_in_transaction(self, connection: AsyncConnection, tenant: str, subject: str) -> frozenset[str]:
        """Remove a user. After the commit, pass the result to `apply_revocations`.

        The API keys of a user of an identity provider are revoked: without the user they would not be checked again.
        """
        key = {"tenant": tenant, "subject": subject, "now": self._clock()}
        if (await connection.execute(_REMOVE_FEDERATED, key)).rowcount > 0:
            await connection.execute(_REVOKE_KEYS, key)
        await connection.execute(_REMOVE, key)
        await erase_principal(connection, tenant, _principal(tenant, subject))
        for statement in _DELETE_OWNED:
            await connection.execute(statement, {"tenant": tenant, "principal": _principal(tenant, subject)})
        return await self.end_sessions_in_transaction(connection, tenant, subject)

    async def suspend(self, tenant: str, subject: str) -> bool:
        """Suspend a user and end all sessions and tokens; API keys are rejected until the user is resumed."""
        key = {"tenant": tenant, "subject": subject, "now": self._clock()}
        async with self._database.transaction() as connection:
            changed = await connection.execute(_SUSPEND, key)
            revoked = await self.end_sessions_in_transaction(connection, tenant, subject)
        await self._revocations.load(revoked)
        return changed.rowcount > 0

    async def resume(self, tenant: str, subject: str) -> bool:
        async with self._database.transaction() as connection:
            changed = await connection.execute(_RESUME, {"tenant": tenant, "subject": subject})
        return changed.rowcount > 0

    async def end_sessions(self, tenant: str, subject: str) -> None:
        """End all sessions and tokens of a user. Takes effect in all processes within a second."""
        async with self._database.transaction() as connection:
            revoked = await self.end_sessions_in_transaction(connection, tenant, subject)
        await self._revocations.load(revoked)

    async def end_sessions_in_transaction(
        self, connection: AsyncConnection, tenant: str, subject: str
    ) -> frozenset[str]:
        """End the user's sessions and revoke the tokens issued so far. Returns the key of the revocation."""
        for statement in _DELETE_SESSIONS:
            await connection.execute(statement, {"tenant": tenant, "subject": subject})
        return await self.revoke_in_transaction(connection, tenant, subject)

    async def revoke_in_transaction(self, connection: AsyncConnection, tenant: str, subject: str) -> frozenset[str]:
        """Revoke the access tokens issued so far; refresh tokens stay valid. Returns the key of the revocation."""
        principal = _principal(tenant, subject)
        return await self._revocations.add_in_transaction(connection, "user", principal, _REVOCATION_SECONDS)

    async def apply_revocations(self, revoked: frozenset[str]) -> None:
        """Apply the revocations of a committed transaction in this process at once."""
        if revoked:
            await self._revocations.load(revoked)

    async def check_password(self, tenant: str, subject: str, password: str) -> User | None:
        """Return the user if the password matches. An unknown name takes as long as a wrong password."""
        row = await self._row(tenant, subject)
        known = None if row is None else row.password
        matches = await self._threads(self._verify, known, password[:_MAX_PASSWORD_CHARS])
        user = user_from_row(row) if matches and row is not None else None
        return user if user is not None and user.is_active(self._clock()) else None

    async def _row(self, tenant: str, subject: str) -> Row[Any] | None:
        async with self._database.reading() as connection:
            found = await connection.execute(_FIND, {"tenant": tenant, "subject": subject})
            return found.one_or_none()

    def _hash(self, password: str) -> str:
        if not _MIN_PASSWORD_CHARS <= len(password) <= _MAX_PASSWORD_CHARS:
            raise Fault(Kind.INVALID_INPUT, f"A password must have at least {_MIN_PASSWORD_CHARS} characters.")
        return self._hasher.hash(password)

    def _verify(self, known: str | None, password: str) -> bool:
        if self._dummy_hash is None:
            self._dummy_hash = self._hasher.hash("dummy password")
        try:
            return self._hasher.verify(known or self._dummy_hash, password) and known is not None
        except (VerificationError, InvalidHashError):
            return False


def _validate_subject(subject: str) -> str:
    if not _SUBJECT.fullmatch(subject):
        raise Fault(Kind.INVALID_INPUT, "A user name must be 1 to 128 letters, digits and . _ @ + -.")
    return subject


def _principal(tenant: str, subject: str) -> str:
    return f"{tenant}/user:{subject}"


def user_from_row(row: Row[Any]) -> User:
    return User(
        tenant=row.tenant,
        subject=row.subject,
        scopes=frozenset(row.scopes.split()),
        groups=frozenset(json.loads(row.member_of)),
        has_password=row.password is not None,
        created=row.created_at,
        suspended=row.suspended_at is not None,
        refused=row.refused_at is not None,
        valid_until=row.valid_until,
    )


_UPSERT = text(
    "INSERT INTO users (tenant, subject, password, scopes, member_of, created_at)"
    " VALUES (:tenant, :subject, :password, :scopes, :member_of, :now)"
    " ON CONFLICT (tenant, subject) DO UPDATE SET password = excluded.password, scopes = excluded.scopes,"
    " member_of = excluded.member_of"
)
_FIND = text("SELECT * FROM users WHERE tenant = :tenant AND subject = :subject")
_LIST = text("SELECT * FROM users ORDER BY tenant, subject")
_REMOVE = text("DELETE FROM users WHERE tenant = :tenant AND subject = :subject")
_REMOVE_FEDERATED = text("DELETE FROM federated_users WHERE tenant = :tenant AND subject = :subject")
_REVOKE_KEYS = text(
    "UPDATE api_keys SET revoked_at = :now"
    " WHERE tenant = :tenant AND subject = :subject AND kind = 'user' AND revoked_at IS NULL"
)
_SUSPEND = text(
    "UPDATE users SET suspended_at = :now WHERE tenant = :tenant AND subject = :subject AND suspended_at IS NULL"
)
_RESUME = text(
    "UPDATE users SET suspended_at = NULL WHERE tenant = :tenant AND subject = :subject AND suspended_at IS NOT NULL"
)
# A user who is created again under the same name must not get the tasks and accounts of the former one.
_DELETE_OWNED: Final = tuple(
    text(f"DELETE FROM {table} WHERE tenant = :tenant AND principal = :principal")  # noqa: S608 - fixed table names
    for table in ("tasks", "accounts")
)
_DELETE_SESSIONS: Final = tuple(
    text(f"DELETE FROM {table} WHERE tenant = :tenant AND subject = :subject")  # noqa: S608 - fixed table names
    for table in ("browser_sessions", "signin_codes", "oauth_codes", "refresh_tokens")
)
