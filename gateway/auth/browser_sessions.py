"""Sign-in sessions of browsers, and the one-time codes that sign in without a password.

Used by the authorization server and by `gatehouse user code`.
"""

import hashlib
import secrets
import time
from collections.abc import Callable
from typing import Final

from sqlalchemy import text

from gateway.auth.users import User, user_from_row
from gateway.state.database import Database

SESSION_SECONDS: Final = 30 * 86400
CODE_SECONDS: Final = 86400
_CODE_ALPHABET: Final = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
_CODE_LENGTH: Final = 10

UserKey = tuple[str, str]
"""A tenant and a subject."""


class BrowserSessions:
    """Sessions and codes shared by all processes. The database stores digests only: a copy grants no access."""

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    async def sign_in(self, user: UserKey, seconds: float = SESSION_SECONDS) -> str:
        """Open a session and return its secret for the cookie."""
        secret = secrets.token_urlsafe(32)
        async with self._database.transaction() as connection:
            await connection.execute(_DELETE_EXPIRED, {"now": self._clock()})
            await connection.execute(_INSERT, self._row(secret, user, seconds))
        return secret

    async def find_user(self, secret: str | None) -> User | None:
        """Return the user of a session; None if the session is unknown or expired, or its user is not active."""
        if not secret:
            return None
        async with self._database.reading() as connection:
            row = (await connection.execute(_FIND, {"digest": _digest(secret), "now": self._clock()})).one_or_none()
        user = None if row is None else user_from_row(row)
        return user if user is not None and user.is_active(self._clock()) else None

    async def sign_out(self, secret: str) -> None:
        async with self._database.transaction() as connection:
            await connection.execute(_DELETE, {"digest": _digest(secret)})

    async def new_code(self, user: UserKey, seconds: float = CODE_SECONDS) -> str:
        """Create a code that signs in one browser, by default within a day."""
        code = "".join(secrets.choice(_CODE_ALPHABET) for _ in range(_CODE_LENGTH))
        async with self._database.transaction() as connection:
            await connection.execute(_DELETE_EXPIRED_CODES, {"now": self._clock()})
            await connection.execute(_INSERT_CODE, self._row(code, user, seconds))
        return f"{code[:5]}-{code[5:]}"

    async def use_code(self, text: str) -> UserKey | None:
        """Return the user of an unused code and invalidate it; None if it is unknown, used or expired."""
        code = "".join(text.upper().split()).replace("-", "")
        one = {"digest": _digest(code), "now": self._clock()}
        async with self._database.transaction() as connection:
            row = (await connection.execute(_FIND_CODE, one)).one_or_none()
            # Of two concurrent uses, only the one that deletes the row succeeds.
            used = await connection.execute(_DELETE_CODE, one)
        return (row.tenant, row.subject) if row is not None and used.rowcount == 1 else None

    def _row(self, secret: str, user: UserKey, ttl: float) -> dict[str, object]:
        return {
            "digest": _digest(secret),
            "tenant": user[0],
            "subject": user[1],
            "expires": self._clock() + ttl,
        }


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


_INSERT = text(
    "INSERT INTO browser_sessions (digest, tenant, subject, expires_at) VALUES (:digest, :tenant, :subject, :expires)"
)
_FIND = text(
    "SELECT users.* FROM browser_sessions AS session"
    " JOIN users ON users.tenant = session.tenant AND users.subject = session.subject"
    " WHERE session.digest = :digest AND session.expires_at > :now"
)
_DELETE = text("DELETE FROM browser_sessions WHERE digest = :digest")
_DELETE_EXPIRED = text("DELETE FROM browser_sessions WHERE expires_at <= :now")
_INSERT_CODE = text(
    "INSERT INTO signin_codes (digest, tenant, subject, expires_at) VALUES (:digest, :tenant, :subject, :expires)"
)
_FIND_CODE = text("SELECT tenant, subject FROM signin_codes WHERE digest = :digest AND expires_at > :now")
_DELETE_CODE = text("DELETE FROM signin_codes WHERE digest = :digest AND expires_at > :now")
_DELETE_EXPIRED_CODES = text("DELETE FROM signin_codes WHERE expires_at <= :now")
