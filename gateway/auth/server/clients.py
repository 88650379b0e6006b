"""OAuth clients: those that register themselves, and those that an operator made for a service."""

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

UNUSED_FOR: Final = 30 * 86400.0
"""Seconds after which a client that nobody used is forgotten."""
_MOST: Final = 20_000
_BEING_USED: Final = 600.0
"""Seconds within which somebody may be about to sign in with a new client."""
_NOTE_EVERY: Final = 3600.0


@dataclass(frozen=True, slots=True)
class RegisteredClient:
    """A program that may ask for tokens."""

    id: str
    name: str
    redirect_uris: tuple[str, ...]
    auth_method: str
    grant_types: tuple[str, ...]
    secret: str = ""
    """A keyed digest, or empty."""
    jwks: Json | None = None
    tenant: str = ""
    service: str = ""
    """The service account that it is, for one made by an operator."""
    scopes: tuple[str, ...] = ()
    """The most that a service or a page of our own may have; any other has what its user may have."""
    document: str = ""
    """The host of the document that describes it, where its id is an address."""
    own: bool = False
    """A page of the gateway itself, which nobody has to allow."""


class RegisteredClients:
    """The clients in the database. Secrets are kept as keyed digests."""

    def __init__(
        self,
        database: Database,
        pepper: bytes,
        revocations: Revocations,
        *,
        most: int = _MOST,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`most` clients that registered themselves are kept."""
        self._most = most
        self._database = database
        self._pepper = pepper
        self._revocations = revocations
        self._clock = clock

    async def find(self, client_id: str) -> RegisteredClient | None:
        async with self._database.reading() as connection:
            row = (await connection.execute(_FIND, {"id": client_id})).one_or_none()
        if row is None or self._stale(row):
            return None
        return _from_row(row)

    async def register(self, name: str, redirect_uris: Iterable[str], auth_method: str, grants: Iterable[str]) -> Json:
        """A client that registered itself: its id, and its secret where it wants one.

        When there are too many, the oldest that nobody ever used is forgotten for it. Raises `Fault(RATE_LIMITED)` when
        all are in use, and when even that one is so new that somebody may be signing in with it.
        """
        metadata = {"name": name, "redirect_uris": list(redirect_uris), "grants": list(grants), "auth": auth_method}
        secret = "" if auth_method == "none" else secrets.token_urlsafe(32)
        row = self._row(f"gthc_{secrets.token_hex(12)}", "", "", secret, metadata)
        async with self._database.transaction() as connection:
            now = self._clock()
            await connection.execute(_FORGET, {"before": now - UNUSED_FOR})
            if (await connection.execute(_COUNT)).scalar_one() >= self._most:
                made_room = await connection.execute(_MAKE_ROOM, {"before": now - _BEING_USED})
                if made_room.rowcount == 0:
                    raise Fault(Kind.RATE_LIMITED, "Too many clients are registered.", retry_after=_BEING_USED)
            await connection.execute(_INSERT, row)
        made: Json = {"client_id": row["id"], "client_id_issued_at": int(row["now"])}
        return {**made, "client_secret": secret, "client_secret_expires_at": 0} if secret else made

    async def add_service(
        self, tenant: str, service: str, scopes: Iterable[str], jwks: Json | None = None
    ) -> tuple[str, str]:
        """A service's own client: its id, and its secret unless it has keys."""
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
            return [_from_row(row) for row in await connection.execute(_LIST) if not self._stale(row)]

    async def remove(self, client_id: str) -> bool:
        """With its tokens, in every process within a second."""
        async with self._database.transaction() as connection:
            removed = await connection.execute(_REMOVE, {"id": client_id})
            await connection.execute(_REMOVE_TOKENS, {"id": client_id})
            await self._revocations.add_within(connection, "client", client_id, 3660.0)
        await self._revocations.load()
        return removed.rowcount > 0

    async def used(self, client_id: str) -> None:
        """Note that somebody signed in with it, so that it is kept."""
        now = self._clock()
        async with self._database.transaction() as connection:
            await connection.execute(_USED, {"id": client_id, "now": now, "before": now - _NOTE_EVERY})

    def secret_is(self, client: RegisteredClient, secret: str) -> bool:
        return bool(client.secret) and hmac.compare_digest(self._digest(secret), client.secret)

    def _stale(self, row: Row[Any]) -> bool:
        return row.tenant == "" and (row.used_at or row.created_at) <= self._clock() - UNUSED_FOR

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
    """The public halves of a JWK set, whatever it holds. Raises `ValueError`."""
    try:
        return cast("Json", KeySet.import_key_set(json.loads(text)).as_dict(private=False))
    except (JoseError, KeyError, TypeError) as exc:
        raise ValueError("not a JWK set") from exc


def _from_row(row: Row[Any]) -> RegisteredClient:
    said: Json = json.loads(row.metadata)
    return RegisteredClient(
        id=row.id,
        name=said["name"],
        redirect_uris=tuple(said["redirect_uris"]),
        auth_method=said["auth"],
        grant_types=tuple(said["grants"]),
        secret=row.secret,
        jwks=said.get("jwks"),
        tenant=row.tenant,
        service=row.service,
        scopes=tuple(said.get("scopes", ())),
    )


_INSERT = text(
    "INSERT INTO oauth_clients (id, tenant, service, secret, metadata, created_at)"
    " VALUES (:id, :tenant, :service, :secret, :metadata, :now)"
)
_FIND = text("SELECT * FROM oauth_clients WHERE id = :id")
_LIST = text("SELECT * FROM oauth_clients ORDER BY created_at, id")
_COUNT = text("SELECT count(*) FROM oauth_clients WHERE tenant = ''")
_FORGET = text("DELETE FROM oauth_clients WHERE tenant = '' AND coalesce(used_at, created_at) <= :before")
_MAKE_ROOM = text(
    "DELETE FROM oauth_clients WHERE id = (SELECT id FROM oauth_clients"
    " WHERE tenant = '' AND used_at IS NULL AND created_at <= :before ORDER BY created_at, id LIMIT 1)"
)
_REMOVE = text("DELETE FROM oauth_clients WHERE id = :id")
_REMOVE_TOKENS = text("DELETE FROM refresh_tokens WHERE client = :id")
_USED = text("UPDATE oauth_clients SET used_at = :now WHERE id = :id AND (used_at IS NULL OR used_at < :before)")
