"""Authorization codes. Each is redeemed at most once, even by concurrent requests to several processes."""

import hashlib
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sqlalchemy import text

from gateway.auth.embedded_issuer import new_family
from gateway.state.database import Database

CODE_SECONDS: Final = 60.0
_RETENTION_SECONDS: Final = 600.0
_RETRY_SECONDS: Final = 5.0
"""Time in which a second redemption counts as a retry of the client, not as a replay."""


@dataclass(frozen=True, slots=True)
class AuthorizationCode:
    """The grant of a user, to be redeemed by the client."""

    tenant: str
    subject: str
    client: str
    redirect_uri: str
    scopes: str
    resource: str
    challenge: str
    family: str


class AuthorizationCodes:
    def __init__(self, database: Database, *, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    async def create(
        self, user: tuple[str, str], client: str, redirect_uri: str, scopes: str, resource: str, challenge: str
    ) -> str:
        """Create a code and return its text."""
        code, now = secrets.token_urlsafe(32), self._clock()
        row = {
            "digest": _digest(code),
            "tenant": user[0],
            "subject": user[1],
            "client": client,
            "redirect_uri": redirect_uri,
            "scopes": scopes,
            "resource": resource,
            "challenge": challenge,
            "family": new_family(),
            "expires": now + CODE_SECONDS,
        }
        async with self._database.transaction() as connection:
            await connection.execute(_DELETE_EXPIRED, {"before": now - _RETENTION_SECONDS})
            await connection.execute(_INSERT, row)
        return code

    async def redeem(self, code: str, client: str) -> tuple[AuthorizationCode | None, str | None]:
        """Redeem a code: return its grant, or None and, after a replay, the token family to revoke."""
        now = self._clock()
        one = {"digest": _digest(code), "client": client, "now": now}
        async with self._database.transaction() as connection:
            # A single statement decides which of several concurrent requests redeems the code.
            redeemed = (await connection.execute(_REDEEM, one)).rowcount == 1
            row = (await connection.execute(_FIND, one)).one_or_none()
        if row is None:
            return None, None
        if not redeemed:
            return None, row.family if row.used_at is not None and row.used_at < now - _RETRY_SECONDS else None
        return AuthorizationCode(*(getattr(row, name) for name in AuthorizationCode.__slots__)), None


def _digest(code: str) -> str:
    return hashlib.sha256(code.encode()).hexdigest()


_INSERT = text(
    "INSERT INTO oauth_codes (digest, tenant, subject, client, redirect_uri, scopes, resource, challenge, family,"
    " expires_at) VALUES (:digest, :tenant, :subject, :client, :redirect_uri, :scopes, :resource, :challenge,"
    " :family, :expires)"
)
_REDEEM = text(
    "UPDATE oauth_codes SET used_at = :now"
    " WHERE digest = :digest AND client = :client AND used_at IS NULL AND expires_at > :now"
)
_FIND = text("SELECT * FROM oauth_codes WHERE digest = :digest AND client = :client")
_DELETE_EXPIRED = text("DELETE FROM oauth_codes WHERE expires_at <= :before")
