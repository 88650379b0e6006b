"""Authorization codes: each redeemed once, whichever processes are asked at the same moment."""

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
_KEPT_FOR: Final = 600.0
_RACE: Final = 5.0
"""Seconds within which a second redemption is taken for a client that sent its request twice."""


@dataclass(frozen=True, slots=True)
class AuthorizationCode:
    """What a person granted, until the client fetches it."""

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

    async def put(
        self, who: tuple[str, str], client: str, redirect_uri: str, scopes: str, resource: str, challenge: str
    ) -> str:
        """The new code's text."""
        code, now = secrets.token_urlsafe(32), self._clock()
        row = {
            "digest": _digest(code),
            "tenant": who[0],
            "subject": who[1],
            "client": client,
            "redirect_uri": redirect_uri,
            "scopes": scopes,
            "resource": resource,
            "challenge": challenge,
            "family": new_family(),
            "expires": now + CODE_SECONDS,
        }
        async with self._database.transaction() as connection:
            await connection.execute(_FORGET, {"before": now - _KEPT_FOR})
            await connection.execute(_INSERT, row)
        return code

    async def redeem(self, code: str, client: str) -> tuple[AuthorizationCode | None, str | None]:
        """The code's grant the first time; else None, and the family to revoke where it was redeemed before."""
        now = self._clock()
        one = {"digest": _digest(code), "client": client, "now": now}
        async with self._database.transaction() as connection:
            # Whoever sets it has redeemed it: one statement, so one winner, also between processes.
            won = (await connection.execute(_REDEEM, one)).rowcount == 1
            row = (await connection.execute(_FIND, one)).one_or_none()
        if row is None:
            return None, None
        if not won:
            return None, row.family if row.used_at is not None and row.used_at < now - _RACE else None
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
_FORGET = text("DELETE FROM oauth_codes WHERE expires_at <= :before")
