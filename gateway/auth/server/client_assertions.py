"""Client authentication with signed assertions (RFC 7523, `private_key_jwt`)."""

import hashlib
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from joserfc.errors import JoseError
from joserfc.jwk import ECKey, KeySet, RSAKey
from sqlalchemy import text

from gateway.auth.jwt import ALGORITHMS, InvalidToken, Key, parse_unverified, verify_signature
from gateway.auth.server.clients import RegisteredClient
from gateway.auth.tokens import LEEWAY, parse_audiences, text_claim, time_claim
from gateway.contract import Json
from gateway.state.database import Database

TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_MAX_LIFETIME_SECONDS: Final = 600.0
"""Maximum lifetime of an assertion; its id is stored for that long."""


class ClientAssertions:
    """Verifies assertions. Each assertion is accepted once, and only with this server as audience."""

    def __init__(self, database: Database, audience: frozenset[str], *, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._audience = audience
        self._clock = clock

    def unverified_client_id(self, form: Mapping[str, str]) -> str | None:
        """Return the client id of an assertion without verifying it."""
        if form.get("client_assertion_type") != TYPE:
            return None
        try:
            return parse_unverified(form.get("client_assertion", "")).issuer
        except InvalidToken:
            return None

    async def verify(self, client: RegisteredClient, assertion: str) -> bool:
        """Return whether the client signed the assertion for this server and has not used it before."""
        try:
            token = parse_unverified(assertion)
            key = _key(client.jwks or {}, token.kid)
            if key is None:
                return False
            claims = verify_signature(token, key, ALGORITHMS)
            if claims.get("iss") != client.id or claims.get("sub") != client.id:
                return False
            now, ends = self._clock(), time_claim(claims, "exp")
            if not now - LEEWAY < ends <= now + _MAX_LIFETIME_SECONDS or time_claim(claims, "nbf", 0.0) > now + LEEWAY:
                return False
            if not parse_audiences(claims) & self._audience:
                return False
            return await self._first_use(client.id, text_claim(claims, "jti"), ends + LEEWAY)
        except InvalidToken:
            return False

    async def _first_use(self, client: str, jti: str, until: float) -> bool:
        digest = hashlib.sha256(f"{client} {jti}".encode()).hexdigest()
        async with self._database.transaction() as connection:
            await connection.execute(_DELETE_EXPIRED, {"now": self._clock()})
            inserted = await connection.execute(_INSERT, {"digest": digest, "until": until})
        return inserted.rowcount == 1


def _key(jwks: Json, kid: str | None) -> Key | None:
    """Return the key with this id; without an id, the only key."""
    try:
        keys = KeySet.import_key_set(cast("Any", jwks)).keys
    except (JoseError, ValueError, KeyError, TypeError):
        return None
    found = [key for key in keys if kid is None or key.kid == kid]
    only = found[0] if len(found) == 1 else None
    return only if isinstance(only, ECKey | RSAKey) else None


_INSERT = text(
    "INSERT INTO assertion_ids (digest, expires_at) VALUES (:digest, :until) ON CONFLICT (digest) DO NOTHING"
)
_DELETE_EXPIRED = text("DELETE FROM assertion_ids WHERE expires_at <= :now")
