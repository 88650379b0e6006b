"""The vault: seals tokens and keys with AES-256-GCM under a data key per tenant, itself sealed by a master key.

Used by `AccountStore`. A sealed value is bound to the row and field that it belongs to, so it opens nowhere else.
"""

import hashlib
import secrets
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import urandom
from typing import Final

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from sqlalchemy import text

from gateway.errors import Fault, Kind
from gateway.state.database import Database

KEY_BYTES: Final = 32
SHARED: Final = ""
"""Owner of secrets that belong to the gateway rather than to a tenant."""
_NONCE_BYTES: Final = 12
_VALUE: Final = "gatehouse vault value v1"
_DATA_KEY: Final = "gatehouse vault key v1"


@dataclass(frozen=True, slots=True)
class SealedField:
    """The place of a sealed value. A value copied to any other place does not open."""

    tenant: str
    principal: str
    backend: str
    issuer: str
    field: str
    version: int

    @property
    def associated_data(self) -> bytes:
        parts = [_VALUE, self.tenant, self.principal, self.backend, self.issuer, self.field, self.version]
        return msgspec.json.encode(parts)


class SealBroken(Fault):
    """A sealed value does not belong to the place where it was found, or was changed."""

    def __init__(self) -> None:
        super().__init__(Kind.UNAVAILABLE, "A stored account cannot be opened. Connect it again.", retryable=False)


class MasterKeys:
    """The master key, and former ones that only open. `repr` shows no key."""

    def __init__(self, current: bytes, former: Sequence[bytes] = ()) -> None:
        if any(len(key) != KEY_BYTES for key in (current, *former)):
            raise Fault(Kind.UNAVAILABLE, f"A master key of the vault must have {KEY_BYTES} bytes.")
        self.id = _key_id(current)
        self._ciphers = {_key_id(key): AESGCM(key) for key in (*former, current)}

    def seal(self, tenant: str, id: str, key: bytes) -> str:
        nonce = urandom(_NONCE_BYTES)
        return _encode(nonce + self._ciphers[self.id].encrypt(nonce, key, _bound(tenant, id)))

    def open(self, tenant: str, id: str, master: str, sealed: str) -> bytes:
        cipher, blob = self._ciphers.get(master), _decode(sealed)
        if cipher is None:
            raise Fault(
                Kind.UNAVAILABLE,
                "The vault is sealed with another master key. Restore it, or list it in vault.former_key_files.",
                retryable=False,
            )
        try:
            return cipher.decrypt(blob[:_NONCE_BYTES], blob[_NONCE_BYTES:], _bound(tenant, id))
        except InvalidTag as exc:
            raise SealBroken from exc


class Vault:
    """Seals and opens values. The data keys are shared by all processes through the database."""

    def __init__(self, database: Database, master: MasterKeys, *, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._master = master
        self._clock = clock
        self._ciphers: dict[tuple[str, str], AESGCM] = {}

    async def seal(self, place: SealedField, value: str) -> str:
        id = await self._newest_key(place.tenant)
        nonce = urandom(_NONCE_BYTES)
        cipher = self._ciphers[(place.tenant, id)]
        return f"{id}.{_encode(nonce + cipher.encrypt(nonce, value.encode(), place.associated_data))}"

    async def open(self, place: SealedField, sealed: str) -> str:
        """Open a value. Raises `SealBroken` unless it was sealed for this place."""
        id, _, encoded = sealed.partition(".")
        cipher = self._ciphers.get((place.tenant, id)) or await self._load(place.tenant, id)
        blob = _decode(encoded)
        try:
            return cipher.decrypt(blob[:_NONCE_BYTES], blob[_NONCE_BYTES:], place.associated_data).decode()
        except InvalidTag as exc:
            raise SealBroken from exc

    async def add_key(self, tenant: str) -> str:
        """Create a data key for new values of this tenant and return its id. Older keys keep opening."""
        id, key = secrets.token_hex(8), AESGCM.generate_key(KEY_BYTES * 8)
        row = {"tenant": tenant, "id": id, "master": self._master.id, "now": self._clock()}
        async with self._database.transaction() as connection:
            await connection.execute(_INSERT, {**row, "sealed": self._master.seal(tenant, id, key)})
        self._ciphers[(tenant, id)] = AESGCM(key)
        return id

    async def tenants(self) -> list[str]:
        """The tenants that have a data key."""
        async with self._database.reading() as connection:
            return [row.tenant for row in await connection.execute(_TENANTS)]

    async def drop_keys(self, tenant: str, *, except_id: str) -> int:
        """Delete the other data keys of a tenant, once no value is sealed with them. Returns their number."""
        async with self._database.transaction() as connection:
            deleted = await connection.execute(_DELETE, {"tenant": tenant, "id": except_id})
        return deleted.rowcount

    async def _newest_key(self, tenant: str) -> str:
        """Read each time: after a rotation by another process, values must be sealed with the new key."""
        async with self._database.reading() as connection:
            row = (await connection.execute(_NEWEST, {"tenant": tenant})).one_or_none()
        if row is None:
            # Two processes may each create a first key: both keys open.
            return await self.add_key(tenant)
        if (tenant, row.id) not in self._ciphers:
            self._ciphers[(tenant, row.id)] = AESGCM(self._master.open(tenant, row.id, row.master, row.sealed))
        return row.id

    async def _load(self, tenant: str, id: str) -> AESGCM:
        async with self._database.reading() as connection:
            row = (await connection.execute(_FIND, {"tenant": tenant, "id": id})).one_or_none()
        if row is None:
            raise SealBroken
        cipher = self._ciphers[(tenant, id)] = AESGCM(self._master.open(tenant, id, row.master, row.sealed))
        return cipher


def _key_id(key: bytes) -> str:
    """Identifies a master key without disclosing it."""
    return hashlib.sha256(b"gatehouse vault master v1" + key).hexdigest()[:16]


def _bound(tenant: str, id: str) -> bytes:
    return msgspec.json.encode([_DATA_KEY, tenant, id])


def _encode(blob: bytes) -> str:
    return urlsafe_b64encode(blob).rstrip(b"=").decode()


def _decode(encoded: str) -> bytes:
    try:
        return urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
    except ValueError as exc:
        raise SealBroken from exc


_INSERT: Final = text(
    "INSERT INTO vault_keys (tenant, id, master, sealed, created_at) VALUES (:tenant, :id, :master, :sealed, :now)"
)
_NEWEST: Final = text(
    "SELECT id, master, sealed FROM vault_keys WHERE tenant = :tenant ORDER BY created_at DESC, id DESC LIMIT 1"
)
_FIND: Final = text("SELECT master, sealed FROM vault_keys WHERE tenant = :tenant AND id = :id")
_TENANTS: Final = text("SELECT DISTINCT tenant FROM vault_keys ORDER BY tenant")
_DELETE: Final = text("DELETE FROM vault_keys WHERE tenant = :tenant AND id <> :id")
