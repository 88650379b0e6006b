"""Browsers that are signed in, and the one-time codes that sign one in without a password."""

import hashlib
import secrets
import time
from collections.abc import Callable
from typing import Final

from sqlalchemy import text

from gateway.state.database import Database

SESSION_SECONDS: Final = 30 * 86400
CODE_SECONDS: Final = 86400
_LETTERS: Final = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
_CODE_LENGTH: Final = 10

Who = tuple[str, str]
"""A tenant and a subject."""


class BrowserSessions:
    """Kept in the database, by digest: any process knows a browser, and a stolen database opens none."""

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    async def sign_in(self, who: Who) -> str:
        """A new session's secret, for a cookie."""
        secret = secrets.token_urlsafe(32)
        async with self._database.transaction() as connection:
            await connection.execute(_FORGET, {"now": self._clock()})
            await connection.execute(_OPEN, self._row(secret, who, SESSION_SECONDS))
        return secret

    async def who(self, secret: str | None) -> Who | None:
        if not secret:
            return None
        async with self._database.reading() as connection:
            row = (await connection.execute(_WHO, {"digest": _digest(secret), "now": self._clock()})).one_or_none()
        return None if row is None else (row.tenant, row.subject)

    async def sign_out(self, secret: str) -> None:
        async with self._database.transaction() as connection:
            await connection.execute(_CLOSE, {"digest": _digest(secret)})

    async def new_code(self, who: Who) -> str:
        """A code that signs a browser in, once, within a day."""
        code = "".join(secrets.choice(_LETTERS) for _ in range(_CODE_LENGTH))
        async with self._database.transaction() as connection:
            await connection.execute(_FORGET_CODES, {"now": self._clock()})
            await connection.execute(_NEW_CODE, self._row(code, who, CODE_SECONDS))
        return f"{code[:5]}-{code[5:]}"

    async def use_code(self, text: str) -> Who | None:
        """Whose it is, the first time; None ever after."""
        code = "".join(text.upper().split()).replace("-", "")
        one = {"digest": _digest(code), "now": self._clock()}
        async with self._database.transaction() as connection:
            row = (await connection.execute(_FIND_CODE, one)).one_or_none()
            # Whoever deletes it has used it, also where two come at once.
            used = await connection.execute(_USE_CODE, one)
        return (row.tenant, row.subject) if row is not None and used.rowcount == 1 else None

    def _row(self, secret: str, who: Who, lasts: float) -> dict[str, object]:
        return {
            "digest": _digest(secret),
            "tenant": who[0],
            "subject": who[1],
            "expires": self._clock() + lasts,
        }


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


_OPEN = text(
    "INSERT INTO browser_sessions (digest, tenant, subject, expires_at) VALUES (:digest, :tenant, :subject, :expires)"
)
_WHO = text("SELECT tenant, subject FROM browser_sessions WHERE digest = :digest AND expires_at > :now")
_CLOSE = text("DELETE FROM browser_sessions WHERE digest = :digest")
_FORGET = text("DELETE FROM browser_sessions WHERE expires_at <= :now")
_NEW_CODE = text(
    "INSERT INTO signin_codes (digest, tenant, subject, expires_at) VALUES (:digest, :tenant, :subject, :expires)"
)
_FIND_CODE = text("SELECT tenant, subject FROM signin_codes WHERE digest = :digest AND expires_at > :now")
_USE_CODE = text("DELETE FROM signin_codes WHERE digest = :digest AND expires_at > :now")
_FORGET_CODES = text("DELETE FROM signin_codes WHERE expires_at <= :now")
