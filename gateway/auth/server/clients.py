"""OAuth clients: dynamically registered ones, and service clients that an operator created."""

import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, cast

from joserfc.errors import JoseError
from joserfc.jwk import KeySet
from sqlalchemy import Row, text

from gateway.auth.revocations import Revocations
from gateway.contract import Json
from gateway.errors import Fault, Kind
from gateway.state.database import Database

UNUSED_SECONDS: Final = 30 * 86400.0
"""Time after which an unused registered client is deleted."""
_MAX_CLIENTS: Final = 20_000
_SIGN_IN_SECONDS: Final = 600.0
"""Time after registration in which a sign-in may still be in progress."""
_USE_INTERVAL: Final = 3600.0


@dataclass(frozen=True, slots=True)
class RegisteredClient:
    """An OAuth client of the embedded authorization server."""

    id: str
    name: str
    redirect_uris: tuple[str, ...]
    auth_method: str
    grant_types: tuple[str, ...]
    secret: str = ""
    """Keyed digest of the secret; empty if the client has none."""
    jwks: Json | None = None
    tenant: str = ""
    service: str = ""
    """Service account of a client that an operator created; otherwise empty."""
    scopes: tuple[str, ...] = ()
    """Maximum scopes of a service or first-party client; for other clients the user's scopes apply."""
    document: str = ""
    """Host of the metadata document, if the client id is a URL."""
    first_party: bool = False
    """Whether the client is part of the gateway and needs no consent."""


class RegisteredClients:
    """Clients in the database. Secrets are stored as keyed digests."""

    def __init__(
        self,
        database: Database,
        pepper: bytes,
        revocations: Revocations,
        *,
        max_clients: int = _MAX_CLIENTS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`max_clients` limits the number of dynamically registered clients."""
        self._max_clients = max_clients
        self._database = database
        self._pepper = pepper
        self._revocations = revocations
        self._clock = clock

    async def find(self, client_id: str) -> RegisteredClient | None:
        async with self._database.reading() as connection:
            row = (await connection.execute(_FIND, {"id": client_id})).one_or_none()
        if row is None or self._is_unused(row):
            return None
        return _from_row(row)

    async def register(self, name: str, redirect_uris: Iterable[str], auth_method: str, grants: Iterable[str]) -> Json:
        """Register a client; return its id and, unless `auth_method` is `none`, its secret.

        At the limit, the oldest client that was never used is evicted. Raises `Fault(RATE_LIMITED)` if every client is
        in use or new enough to have a sign-in in progress.
        """
        metadata = {"name": name, "redirect_uris": list(redirect_uris), "grants": list(grants), "auth": auth_method}
        secret = "" if auth_method == "none" else secrets.token_urlsafe(32)
        row = self._row(f"gthc_{secrets.token_hex(12)}", "", "", secret, metadata)
        async with self._database.transaction() as connection:
            now = self._clock()
            await connection.execute(_DELETE_UNUSED, {"before": now - UNUSED_SECONDS})
            if (await connection.execute(_COUNT)).scalar_one() >= self._max_clients:
                evicted = await connection.execute(_EVICT_OLDEST, {"before": now - _SIGN_IN_SECONDS})
                if evicted.rowcount == 0:
                    raise Fault(
                        Kind.RATE_LIMITED,
                        "Too many clients are registered. Try again later.",
                        retry_after=_SIGN_IN_SECONDS,
                    )
            await connection.execute(_INSERT, row)
        registered: Json = {"client_id": row["id"], "client_id_issued_at": int(row["now"])}
        return {**registered, "client_secret": secret, "client_secret_expires_at": 0} if secret else registered

    async def add_service(
        self, tenant: str, service: str, scopes: Iterable[str], jwks: Json | None = None
    ) -> tuple[str, str]:
        """Create the client of a service account; return its id, and its secret unless it has keys."""
        metadata: Json = {
            "name": service,
            "redirect_uris": [],
            "grants": ["client_credentials"],
            "auth": "private_key_jwt" if jwks else "client_secret_basic",
            "scopes": sorted(scopes),
            "jwks": jwks,
        }
        secret = "" if jwks else secrets.token_urlsafe(32)
        row = self._row(f"gths_{secrets.token_hex(12)}", tenant, service, secret, metadata)
        async with self._database.transaction() as connection:
            await connection.execute(_INSERT, row)
        return row["id"], secret

    async def list(self) -> "list[RegisteredClient]":
        async with self._database.reading() as connection:
            return [_from_row(row) for row in await connection.execute(_LIST) if not self._is_unused(row)]

    async def remove(self, client_id: str) -> bool:
        """Remove a client and revoke its tokens. Takes effect in all processes within a second."""
        async with self._database.transaction() as connection:
            removed = await connection.execute(_REMOVE, {"id": client_id})
            await connection.execute(_REMOVE_TOKENS, {"id": client_id})
            revoked = await self._revocations.add_in_transaction(connection, "client", client_id, 3660.0)
        await self._revocations.load(revoked)
        return removed.rowcount > 0

    async def record_use(self, client_id: str) -> None:
        """Record a sign-in with the client, which protects it from deletion."""
        now = self._clock()
        async with self._database.transaction() as connection:
            await connection.execute(_UPDATE_USED, {"id": client_id, "now": now, "before": now - _USE_INTERVAL})

    def check_secret(self, client: RegisteredClient, secret: str) -> bool:
        return bool(client.secret) and hmac.compare_digest(self._digest(secret), client.secret)

    def _is_unused(self, row: Row[Any]) -> bool:
        return row.tenant == "" and (row.used_at or row.created_at) <= self._clock() - UNUSED_SECONDS

    def _digest(self, secret: str) -> str:
        return hmac.new(self._pepper, b"client " + secret.encode(), hashlib.sha256).hexdigest()

    def _row(self, id: str, tenant: str, service: str, secret: str, metadata: Json) -> Json:
        return {
            "id": id,
            "tenant": tenant,
            "service": service,
            "secret": self._digest(secret) if secret else "",
            "metadata": json.dumps(metadata),
            "now": self._clock(),
        }


def public_keys(text: bytes) -> Json:
    """Return the public keys of a JWK set, without any private parts. Raises `ValueError`."""
    try:
        return cast("Json", KeySet.import_key_set(json.loads(text)).as_dict(private=False))
    except (JoseError, KeyError, TypeError) as exc:
        raise ValueError("not a JWK set") from exc


def _from_row(row: Row[Any]) -> RegisteredClient:
    metadata: Json = json.loads(row.metadata)
    return RegisteredClient(
        id=row.id,
        name=metadata["name"],
        redirect_uris=tuple(metadata["redirect_uris"]),
        auth_method=metadata["auth"],
        grant_types=tuple(metadata["grants"]),
        secret=row.secret,
        jwks=metadata.get("jwks"),
        tenant=row.tenant,
        service=row.service,
        scopes=tuple(metadata.get("scopes", ())),
    )


_INSERT = text(
    "INSERT INTO oauth_clients (id, tenant, service, secret, metadata, created_at)"
    " VALUES (:id, :tenant, :service, :secret, :metadata, :now)"
)
_FIND = text("SELECT * FROM oauth_clients WHERE id = :id")
_LIST = text("SELECT * FROM oauth_clients ORDER BY created_at, id")
_COUNT = text("SELECT count(*) FROM oauth_clients WHERE tenant = ''")
_DELETE_UNUSED = text("DELETE FROM oauth_clients WHERE tenant = '' AND coalesce(used_at, created_at) <= :before")
_EVICT_OLDEST = text(
    "DELETE FROM oauth_clients WHERE id = (SELECT id FROM oauth_clients"
    " WHERE tenant = '' AND used_at IS NULL AND created_at <= :before ORDER BY created_at, id LIMIT 1)"
)
_REMOVE = text("DELETE FROM oauth_clients WHERE id = :id")
_REMOVE_TOKENS = text("DELETE FROM refresh_tokens WHERE client = :id")
_UPDATE_USED = text("UPDATE oauth_clients SET used_at = :now WHERE id = :id AND (used_at IS NULL OR used_at < :before)")
