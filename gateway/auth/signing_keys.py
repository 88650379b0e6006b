"""Signing keys of the embedded issuer, stored encrypted in the database and shared by all processes."""

import asyncio
import base64
import json
import os
import secrets
import time
from collections.abc import Callable
from typing import Any, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from joserfc import jwt
from joserfc.jwk import ECKey
from sqlalchemy import text

from gateway.contract import Json
from gateway.errors import Fault, Kind
from gateway.state.changes import Keys
from gateway.state.database import Database

ALGORITHM: Final = "ES256"
TYPE: Final = "at+jwt"
_NONCE_BYTES: Final = 12
_RETIRED_SECONDS: Final = 3600.0
"""How long a retired key still verifies tokens; longer than the lifetime of any token."""
_RELOAD_SECONDS: Final = 1.0


class SigningKeys:
    """Create it with `SigningKeys.open`. Signs with the newest key; also verifies with recently retired keys."""

    def __init__(self, database: Database, secret: bytes, *, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._cipher = AESGCM(secret)
        self._clock = clock
        self._keys: dict[str, ECKey] = {}
        self._retired: dict[str, float] = {}
        """Times at which keys were retired."""
        self._newest = ""
        self._loading = asyncio.Lock()
        self._last_reload = 0.0

    @classmethod
    async def open(cls, database: Database, secret: bytes) -> "SigningKeys":
        """Load the keys; create the first one if there is none."""
        signing = cls(database, secret)
        await signing._create_first_key()
        await database.follow("signing_keys", signing._load)
        return signing

    def sign(self, claims: Json) -> str:
        key = self._keys[self._newest]
        return jwt.encode({"alg": ALGORITHM, "typ": TYPE, "kid": self._newest}, claims, key, algorithms=[ALGORITHM])

    async def key(self, kid: str | None) -> ECKey | None:
        """Return a key by id. An unknown id reloads the keys of other processes, at most once a second."""
        if kid is None:
            return None
        found = self._keys.get(kid)
        if found is None and time.monotonic() >= self._last_reload + _RELOAD_SECONDS:
            self._last_reload = time.monotonic()
            await self._load()
            found = self._keys.get(kid)
        return None if found is None or self._is_outdated(kid) else found

    def public_jwks(self) -> Json:
        """Return the public keys as a JWK set."""
        return {
            "keys": [
                {**key.as_dict(private=False), "kid": kid, "use": "sig", "alg": ALGORITHM}
                for kid, key in self._keys.items()
                if not self._is_outdated(kid)
            ]
        }

    async def rotate(self) -> str:
        """Create a new signing key and return its id. The old keys verify tokens until these have expired."""
        kid, row = self._new_key()
        async with self._database.transaction() as connection:
            await connection.execute(_RETIRE, {"now": self._clock()})
            await connection.execute(_INSERT, row)
            await connection.execute(_DELETE_RETIRED, {"before": self._clock() - _RETIRED_SECONDS})
        await self._load()
        return kid

    async def _create_first_key(self) -> None:
        # Two processes may each create a first key: both keys verify, and all processes sign with the later one.
        async with self._database.transaction() as connection:
            if (await connection.execute(_COUNT)).scalar_one() == 0:
                await connection.execute(_INSERT, self._new_key()[1])

    def _is_outdated(self, kid: str) -> bool:
        return kid in self._retired and self._retired[kid] <= self._clock() - _RETIRED_SECONDS

    async def _load(self, _kids: Keys = None) -> None:
        async with self._loading:
            async with self._database.reading() as connection:
                rows = (await connection.execute(_SELECT, {"before": self._clock() - _RETIRED_SECONDS})).all()
            self._keys = {row.kid: self._keys.get(row.kid) or self._decrypt(row.kid, row.sealed) for row in rows}
            self._retired = {row.kid: row.retired_at for row in rows if row.retired_at is not None}
            self._newest = rows[-1].kid if rows else ""

    def _new_key(self) -> tuple[str, Json]:
        kid = secrets.token_hex(8)
        key = ECKey.generate_key("P-256", private=True)
        nonce = os.urandom(_NONCE_BYTES)
        plain = json.dumps(key.as_dict(private=True)).encode()
        sealed = base64.b64encode(nonce + self._cipher.encrypt(nonce, plain, kid.encode())).decode()
        return kid, {"kid": kid, "sealed": sealed, "now": self._clock()}

    def _decrypt(self, kid: str, sealed: str) -> ECKey:
        raw = base64.b64decode(sealed)
        try:
            plain: Any = json.loads(self._cipher.decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], kid.encode()))
        except InvalidTag as exc:
            raise Fault(
                Kind.UNAVAILABLE, "The signing keys are encrypted with another secret. Restore secrets/signing."
            ) from exc
        return ECKey.import_key(plain)


def can_decrypt(secret: bytes, kid: str, sealed: str) -> bool:
    """Return whether a stored signing key is encrypted with this secret."""
    raw = base64.b64decode(sealed)
    try:
        AESGCM(secret).decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], kid.encode())
    except InvalidTag:
        return False
    return True


_COUNT = text("SELECT count(*) FROM signing_keys WHERE retired_at IS NULL")
_INSERT = text("INSERT INTO signing_keys (kid, sealed, created_at) VALUES (:kid, :sealed, :now)")
_RETIRE = text("UPDATE signing_keys SET retired_at = :now WHERE retired_at IS NULL")
_DELETE_RETIRED = text("DELETE FROM signing_keys WHERE retired_at <= :before")
_SELECT = text(
    "SELECT kid, sealed, retired_at FROM signing_keys WHERE retired_at IS NULL OR retired_at > :before"
    " ORDER BY CASE WHEN retired_at IS NULL THEN 1 ELSE 0 END, created_at, kid"
)
