"""Refresh tokens with rotation and replay detection.

Several processes of a client may share a token and refresh it at the same time. Within a grace period, they all get the
same response. A token that is used again later counts as stolen, and its whole family is revoked.
"""

import base64
import hashlib
import json
import os
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.auth.embedded_issuer import OAuthGrant
from gateway.auth.revocations import Revocations
from gateway.contract import Json
from gateway.state.database import Database

GRACE_SECONDS: Final = 45.0
SLIDING_SECONDS: Final = 30 * 86400.0
ABSOLUTE_SECONDS: Final = 90 * 86400.0
_NONCE_BYTES: Final = 12
_REVOCATION_SECONDS: Final = 3660.0
"""Longer than the lifetime of an access token."""

Mint = Callable[[AsyncConnection, Row[Any]], Awaitable[Json | None]]
"""Maps the row of a refresh token to the token response without a refresh token; None if the user is gone.

It reads with the connection of the rotation: with a second one, concurrent rotations could exhaust the pool.
"""


@dataclass(frozen=True, slots=True)
class RefreshRejected:
    """A rejected refresh. `replayed` is tenant, subject and client of a family that was revoked after a replay."""

    replayed: tuple[str, str, str] | None = None


class RefreshTokens:
    """Refresh tokens, stored as digests.

    The response of a refresh is stored for the grace period, encrypted with the token that was refreshed.
    """

    def __init__(self, database: Database, revocations: Revocations, *, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._revocations = revocations
        self._clock = clock

    async def create(self, grant: OAuthGrant) -> str:
        """Create the first refresh token of a family."""
        now = self._clock()
        token = secrets.token_urlsafe(32)
        row = {
            "digest": _digest(token),
            "tenant": grant.tenant,
            "subject": grant.subject,
            "client": grant.client,
            "scopes": " ".join(sorted(grant.scopes)),
            "resource": grant.resource,
            "family": grant.family,
            "generation": 0,
            "expires": now + SLIDING_SECONDS,
            "ends": now + ABSOLUTE_SECONDS,
        }
        async with self._database.transaction() as connection:
            await connection.execute(_DELETE_EXPIRED, {"now": now})
            await connection.execute(_INSERT, row)
        return token

    async def rotate(self, token: str, client: str, resource: str | None, mint: Mint) -> Json | RefreshRejected:
        """Rotate a token and return the token response. Within the grace period, return the same response again."""
        now, one = self._clock(), {"digest": _digest(token)}
        async with self._database.transaction() as connection:
            # The first request rotates the token. The row lock makes the others wait for the successor.
            first = (await connection.execute(_ROTATE, {**one, "now": now, "client": client})).rowcount == 1
            row = (await connection.execute(_FIND, one)).one_or_none()
            if row is None or row.client != client or resource not in (None, row.resource):
                return await self._undo_rotation(connection, one, first)
            if row.expires_at <= now or row.ends_at <= now:
                return RefreshRejected()
            if first:
                return await self._issue_successor(connection, token, row, mint)
            if row.successor is not None and row.rotated_at + GRACE_SECONDS >= now:
                return _decrypt(token, row.successor)
            revoked = await self._revoke_family(connection, row.family)
        await self._revocations.load(revoked)
        return RefreshRejected((row.tenant, row.subject, row.client))

    async def _undo_rotation(self, connection: AsyncConnection, one: Json, first: bool) -> RefreshRejected:
        """Reject a request for the wrong client or resource without using up the token."""
        if first:
            await connection.execute(_UNROTATE, one)
        return RefreshRejected()

    async def _issue_successor(
        self, connection: AsyncConnection, token: str, row: Row[Any], mint: Mint
    ) -> Json | RefreshRejected:
        response = await mint(connection, row)
        if response is None:
            await self._revoke_family(connection, row.family)
            return RefreshRejected()
        now, successor = self._clock(), secrets.token_urlsafe(32)
        response = {**response, "refresh_token": successor}
        await connection.execute(
            _INSERT,
            {
                "digest": _digest(successor),
                "tenant": row.tenant,
                "subject": row.subject,
                "client": row.client,
                "scopes": row.scopes,
                "resource": row.resource,
                "family": row.family,
                "generation": row.generation + 1,
                "expires": min(now + SLIDING_SECONDS, row.ends_at),
                "ends": row.ends_at,
            },
        )
        await connection.execute(_SAVE_RESPONSE, {"digest": row.digest, "successor": _encrypt(token, response)})
        return response

    async def find_family(self, token: str) -> tuple[str, str] | None:
        """Return the family and the client of a token; None if it is unknown."""
        async with self._database.reading() as connection:
            row = (await connection.execute(_FIND, {"digest": _digest(token)})).one_or_none()
        return None if row is None else (row.family, row.client)

    async def find_owner(self, token: str) -> tuple[str, str] | None:
        """Return tenant and subject of a token that was not used yet; None if there is no such token."""
        async with self._database.reading() as connection:
            row = (await connection.execute(_FIND, {"digest": _digest(token)})).one_or_none()
        return None if row is None or row.rotated_at is not None else (row.tenant, row.subject)

    async def revoke_family(self, family: str) -> None:
        """Revoke every token of a family. Takes effect in all processes within a second."""
        async with self._database.transaction() as connection:
            revoked = await self._revoke_family(connection, family)
        await self._revocations.load(revoked)

    async def _revoke_family(self, connection: AsyncConnection, family: str) -> frozenset[str]:
        await connection.execute(_DELETE_FAMILY, {"family": family})
        return await self._revocations.add_in_transaction(connection, "family", family, _REVOCATION_SECONDS)


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _cipher(token: str) -> AESGCM:
    return AESGCM(hashlib.sha256(b"successor " + token.encode()).digest())


def _encrypt(token: str, answer: Json) -> str:
    nonce = os.urandom(_NONCE_BYTES)
    return base64.b64encode(nonce + _cipher(token).encrypt(nonce, json.dumps(answer).encode(), None)).decode()


def _decrypt(token: str, sealed: str) -> Json:
    raw = base64.b64decode(sealed)
    return json.loads(_cipher(token).decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], None))


_INSERT = text(
    "INSERT INTO refresh_tokens (digest, tenant, subject, client, scopes, resource, family, generation, expires_at,"
    " ends_at) VALUES (:digest, :tenant, :subject, :client, :scopes, :resource, :family, :generation, :expires, :ends)"
)
_FIND = text("SELECT * FROM refresh_tokens WHERE digest = :digest")
_ROTATE = text(
    "UPDATE refresh_tokens SET rotated_at = :now"
    " WHERE digest = :digest AND client = :client AND rotated_at IS NULL AND expires_at > :now"
)
_UNROTATE = text("UPDATE refresh_tokens SET rotated_at = NULL WHERE digest = :digest")
_SAVE_RESPONSE = text("UPDATE refresh_tokens SET successor = :successor WHERE digest = :digest")
_DELETE_FAMILY = text("DELETE FROM refresh_tokens WHERE family = :family")
_DELETE_EXPIRED = text("DELETE FROM refresh_tokens WHERE expires_at <= :now")
