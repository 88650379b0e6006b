"""The keys that the gateway signs its own tokens with: sealed in the database, so that all processes share them."""

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
from gateway.state.database import Database

ALGORITHM: Final = "ES256"
TYPE: Final = "at+jwt"
_NONCE: Final = 12
_RETIRED_FOR: Final = 3600.0
"""Seconds for which a retired key still verifies: longer than any token lives."""
_LOOK_AGAIN: Final = 1.0


class SigningKeys:
    """Open it with `Signing.open`. Signs with the newest key; verifies with every key not long retired."""

    def __init__(self, database: Database, secret: bytes, *, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._box = AESGCM(secret)
        self._clock = clock
        self._keys: dict[str, ECKey] = {}
        self._newest = ""
        self._loading = asyncio.Lock()
        self._looked = 0.0

    @classmethod
    async def open(cls, database: Database, secret: bytes) -> "SigningKeys":
        """Makes the first key if there is none."""
        signing = cls(database, secret)
        await signing._begin()
        await database.follow(signing._load)
        return signing

    def sign(self, claims: Json) -> str:
        key = self._keys[self._newest]
        return jwt.encode({"alg": ALGORITHM, "typ": TYPE, "kid": self._newest}, claims, key, algorithms=[ALGORITHM])

    async def key(self, kid: str | None) -> ECKey | None:
        """Its key of that id; one that another process has just made is looked for, once a second at most."""
        if kid is None:
            return None
        found = self._keys.get(kid)
        if found is None and time.monotonic() >= self._looked + _LOOK_AGAIN:
            self._looked = time.monotonic()
            await self._load()
            found = self._keys.get(kid)
        return found

    def published(self) -> Json:
        """The public halves, as a JWK set."""
        return {
            "keys": [
                {**key.as_dict(private=False), "kid": kid, "use": "sig", "alg": ALGORITHM}
                for kid, key in self._keys.items()
            ]
        }

    async def rotate(self) -> str:
        """A new key signs from now on; the old ones verify until no token of theirs is left. Gives its id."""
        kid, row = self._new()
        async with self._database.transaction() as connection:
            await connection.execute(_RETIRE, {"now": self._clock()})
            await connection.execute(_INSERT, row)
            await connection.execute(_FORGET, {"before": self._clock() - _RETIRED_FOR})
        await self._load()
        return kid

    async def _begin(self) -> None:
        # Should two processes find none at once, there are two: both verify, and all sign with the later one.
        async with self._database.transaction() as connection:
            if (await connection.execute(_COUNT)).scalar_one() == 0:
                await connection.execute(_INSERT, self._new()[1])

    async def _load(self) -> None:
        async with self._loading:
            async with self._database.reading() as connection:
                rows = (await connection.execute(_SELECT, {"before": self._clock() - _RETIRED_FOR})).all()
            self._keys = {row.kid: self._keys.get(row.kid) or self._opened(row.kid, row.sealed) for row in rows}
            self._newest = rows[-1].kid if rows else ""

    def _new(self) -> tuple[str, Json]:
        kid = secrets.token_hex(8)
        key = ECKey.generate_key("P-256", private=True)
        nonce = os.urandom(_NONCE)
        plain = json.dumps(key.as_dict(private=True)).encode()
        sealed = base64.b64encode(nonce + self._box.encrypt(nonce, plain, kid.encode())).decode()
        return kid, {"kid": kid, "sealed": sealed, "now": self._clock()}

    def _opened(self, kid: str, sealed: str) -> ECKey:
        raw = base64.b64decode(sealed)
        try:
            plain: Any = json.loads(self._box.decrypt(raw[:_NONCE], raw[_NONCE:], kid.encode()))
        except InvalidTag as exc:
            raise Fault(
                Kind.UNAVAILABLE, "The signing keys were sealed with another secret: restore secrets/signing."
            ) from exc
        return ECKey.import_key(plain)


def opens(secret: bytes, kid: str, sealed: str) -> bool:
    """Whether a key as the database has it was sealed with this secret."""
    raw = base64.b64decode(sealed)
    try:
        AESGCM(secret).decrypt(raw[:_NONCE], raw[_NONCE:], kid.encode())
    except InvalidTag:
        return False
    return True


_COUNT = text("SELECT count(*) FROM signing_keys WHERE retired_at IS NULL")
_INSERT = text("INSERT INTO signing_keys (kid, sealed, created_at) VALUES (:kid, :sealed, :now)")
_RETIRE = text("UPDATE signing_keys SET retired_at = :now WHERE retired_at IS NULL")
_FORGET = text("DELETE FROM signing_keys WHERE retired_at <= :before")
_SELECT = text(
    "SELECT kid, sealed FROM signing_keys WHERE retired_at IS NULL OR retired_at > :before"
    " ORDER BY CASE WHEN retired_at IS NULL THEN 1 ELSE 0 END, created_at, kid"
)
