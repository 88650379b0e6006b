"""Bearer tokens of SCIM clients: one for each tenant, stored as a keyed digest."""

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sqlalchemy import text

from gateway.state.database import Database

_PREFIX: Final = "gthscim_"


@dataclass(frozen=True, slots=True)
class ScimClient:
    """A client that provisions one tenant with the users of one identity provider."""

    tenant: str
    provider: str
    created: float


class ScimTokens:
    def __init__(self, database: Database, pepper: bytes, *, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._key = hmac.digest(pepper, b"scim", "sha256")
        self._clock = clock

    async def create(self, tenant: str, provider: str) -> str:
        """Create the token of a tenant and return it. An earlier token of the tenant becomes invalid."""
        token = _PREFIX + secrets.token_urlsafe(32)
        row = {"tenant": tenant, "provider": provider, "digest": self._digest(token), "now": self._clock()}
        async with self._database.transaction() as connection:
            await connection.execute(_UPSERT, row)
        return token

    async def revoke(self, tenant: str) -> bool:
        async with self._database.transaction() as connection:
            return (await connection.execute(_DELETE, {"tenant": tenant})).rowcount > 0

    async def list(self) -> list[ScimClient]:
        async with self._database.reading() as connection:
            rows = await connection.execute(_LIST)
        return [ScimClient(row.tenant, row.provider, row.created_at) for row in rows]

    async def verify(self, token: str) -> ScimClient | None:
        if not token.startswith(_PREFIX) or len(token) > 128:
            return None
        async with self._database.reading() as connection:
            row = (await connection.execute(_FIND, {"digest": self._digest(token)})).one_or_none()
        return None if row is None else ScimClient(row.tenant, row.provider, row.created_at)

    def _digest(self, token: str) -> str:
        return hmac.new(self._key, token.encode(), hashlib.sha256).hexdigest()


_UPSERT = text(
    "INSERT INTO scim_tokens (tenant, provider, digest, created_at) VALUES (:tenant, :provider, :digest, :now)"
    " ON CONFLICT (tenant) DO UPDATE SET provider = excluded.provider, digest = excluded.digest,"
    " created_at = excluded.created_at"
)
_FIND = text("SELECT * FROM scim_tokens WHERE digest = :digest")
_LIST = text("SELECT * FROM scim_tokens ORDER BY tenant")
_DELETE = text("DELETE FROM scim_tokens WHERE tenant = :tenant")
