"""Refresh tokens: rotated at each use; a client that asks twice within moments gets the same answer twice.

Real clients race: several processes of one share a token. A token used again later was stolen by one of two, so the
whole family ends.
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

GRACE: Final = 45.0
SLIDING: Final = 30 * 86400.0
ABSOLUTE: Final = 90 * 86400.0
_NONCE: Final = 12
_FAMILY_REVOKED_FOR: Final = 3660.0
"""Longer than an access token of ours can live."""

Mint = Callable[[Row[Any]], Awaitable[Json | None]]
"""A refresh token's row -> the token answer without its refresh token; None when the user is gone."""


@dataclass(frozen=True, slots=True)
class RefreshRejected:
    """Why no token was given; `replayed` names the owner of a family that ended because of it."""

    replayed: tuple[str, str, str] | None = None


class RefreshTokens:
    """Kept by digest. What a refresh answered is kept sealed under the token that asked, for the moments of grace."""

    def __init__(self, database: Database, revocations: Revocations, *, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._revocations = revocations
        self._clock = clock

    async def first(self, grant: OAuthGrant) -> str:
        """The first refresh token of a family."""
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
            "expires": now + SLIDING,
            "ends": now + ABSOLUTE,
        }
        async with self._database.transaction() as connection:
            await connection.execute(_FORGET, {"now": now})
            await connection.execute(_INSERT, row)
        return token

    async def rotate(self, token: str, client: str, resource: str | None, mint: Mint) -> Json | RefreshRejected:
        """The token answer; the same one again to whoever asks again within the grace."""
        now, one = self._clock(), {"digest": _digest(token)}
        async with self._database.transaction() as connection:
            # The first to set it rotates; the statement also makes others wait until the successor is there.
            first = (await connection.execute(_ROTATE, {**one, "now": now, "client": client})).rowcount == 1
            row = (await connection.execute(_FIND, one)).one_or_none()
            if row is None or row.client != client or resource not in (None, row.resource):
                return await self._undone(connection, one, first)
            if row.expires_at <= now or row.ends_at <= now:
                return RefreshRejected()
            if first:
                return await self._successor(connection, token, row, mint)
            if row.successor is not None and row.rotated_at + GRACE >= now:
                return _opened(token, row.successor)
            await self._end(connection, row.family)
        await self._revocations.load()
        return RefreshRejected((row.tenant, row.subject, row.client))

    async def _undone(self, connection: AsyncConnection, one: Json, first: bool) -> RefreshRejected:
        """A request for the wrong resource is refused, and uses nothing up."""
        if first:
            await connection.execute(_UNROTATE, one)
        return RefreshRejected()

    async def _successor(
        self, connection: AsyncConnection, token: str, row: Row[Any], mint: Mint
    ) -> Json | RefreshRejected:
        answer = await mint(row)
        if answer is None:
            await self._end(connection, row.family)
            return RefreshRejected()
        now, fresh = self._clock(), secrets.token_urlsafe(32)
        answer = {**answer, "refresh_token": fresh}
        await connection.execute(
            _INSERT,
            {
                "digest": _digest(fresh),
                "tenant": row.tenant,
                "subject": row.subject,
                "client": row.client,
                "scopes": row.scopes,
                "resource": row.resource,
                "family": row.family,
                "generation": row.generation + 1,
                "expires": min(now + SLIDING, row.ends_at),
                "ends": row.ends_at,
            },
        )
        await connection.execute(_KEEP_ANSWER, {"digest": row.digest, "successor": _sealed(token, answer)})
        return answer

    async def family(self, token: str) -> tuple[str, str] | None:
        """The family and the client of a token that is known."""
        async with self._database.reading() as connection:
            row = (await connection.execute(_FIND, {"digest": _digest(token)})).one_or_none()
        return None if row is None else (row.family, row.client)

    async def end(self, family: str) -> None:
        """End every token of the family, here and in other processes within a second."""
        async with self._database.transaction() as connection:
            await self._end(connection, family)
        await self._revocations.load()

    async def _end(self, connection: AsyncConnection, family: str) -> None:
        await connection.execute(_END, {"family": family})
        await self._revocations.add_within(connection, "family", family, _FAMILY_REVOKED_FOR)


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _box(token: str) -> AESGCM:
    return AESGCM(hashlib.sha256(b"successor " + token.encode()).digest())


def _sealed(token: str, answer: Json) -> str:
    nonce = os.urandom(_NONCE)
    return base64.b64encode(nonce + _box(token).encrypt(nonce, json.dumps(answer).encode(), None)).decode()


def _opened(token: str, sealed: str) -> Json:
    raw = base64.b64decode(sealed)
    return json.loads(_box(token).decrypt(raw[:_NONCE], raw[_NONCE:], None))


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
_KEEP_ANSWER = text("UPDATE refresh_tokens SET successor = :successor WHERE digest = :digest")
_END = text("DELETE FROM refresh_tokens WHERE family = :family")
_FORGET = text("DELETE FROM refresh_tokens WHERE expires_at <= :now")
