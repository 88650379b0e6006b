"""Clients that prove who they are with a key of their own (RFC 7523, `private_key_jwt`)."""

import hashlib
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from joserfc.errors import JoseError
from joserfc.jwk import ECKey, KeySet, RSAKey
from sqlalchemy import text

from gateway.auth.jwt import ALGORITHMS, InvalidToken, Key, peek, verified
from gateway.auth.server.clients import RegisteredClient
from gateway.auth.tokens import LEEWAY, audiences, moment, word
from gateway.contract import Json
from gateway.state.database import Database

TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_LONGEST: Final = 600.0
"""Seconds that an assertion may be good for: its id has to be remembered as long."""


class ClientAssertions:
    """Each assertion is good once, at this server only."""

    def __init__(self, database: Database, audience: frozenset[str], *, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._audience = audience
        self._clock = clock

    def named(self, form: Mapping[str, str]) -> str | None:
        """The client that an assertion speaks of, before anything is verified."""
        if form.get("client_assertion_type") != TYPE:
            return None
        try:
            return peek(form.get("client_assertion", "")).issuer
        except InvalidToken:
            return None

    async def holds(self, client: RegisteredClient, assertion: str) -> bool:
        """Whether the client made it, for us, and did not use it before."""
        try:
            token = peek(assertion)
            key = _key(client.jwks or {}, token.kid)
            if key is None:
                return False
            claims = verified(token, key, ALGORITHMS)
            if claims.get("iss") != client.id or claims.get("sub") != client.id:
                return False
            now, ends = self._clock(), moment(claims, "exp")
            if not now - LEEWAY < ends <= now + _LONGEST or moment(claims, "nbf", 0.0) > now + LEEWAY:
                return False
            if not audiences(claims) & self._audience:
                return False
            return await self._first_use(client.id, word(claims, "jti"), ends + LEEWAY)
        except InvalidToken:
            return False

    async def _first_use(self, client: str, jti: str, until: float) -> bool:
        digest = hashlib.sha256(f"{client} {jti}".encode()).hexdigest()
        async with self._database.transaction() as connection:
            await connection.execute(_FORGET, {"now": self._clock()})
            noted = await connection.execute(_NOTE, {"digest": digest, "until": until})
        return noted.rowcount == 1


def _key(jwks: Json, kid: str | None) -> Key | None:
    """The key of that id, or the only one where none is named."""
    try:
        keys = KeySet.import_key_set(cast("Any", jwks)).keys
    except (JoseError, ValueError, KeyError, TypeError):
        return None
    found = [key for key in keys if kid is None or key.kid == kid]
    only = found[0] if len(found) == 1 else None
    return only if isinstance(only, ECKey | RSAKey) else None


_NOTE = text("INSERT INTO assertion_ids (digest, expires_at) VALUES (:digest, :until) ON CONFLICT (digest) DO NOTHING")
_FORGET = text("DELETE FROM assertion_ids WHERE expires_at <= :now")
