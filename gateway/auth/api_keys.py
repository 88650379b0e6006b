"""API keys: their format, creation, verification and revocation.

A key has the form `gth_<id>_<secret>_<checksum>`. It is shown once; the database stores a keyed digest of the secret.
The checksum detects typos and identifies leaked keys without a database lookup. Used by `Credentials` and by the CLI.
"""

import asyncio
import hashlib
import hmac
import json
import logging
import re
import secrets
import string
import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from sqlalchemy import Row, bindparam, text
from sqlalchemy.exc import SQLAlchemyError

from gateway.contract import Caller
from gateway.contract.caller import DEFAULT_SCOPES
from gateway.errors import Fault, Kind
from gateway.state.database import BatchRead, Database
from gateway.state.private_files import validate_name

_ID_CHARACTERS: Final = string.ascii_lowercase + string.digits
_CHECKSUM_CHARACTERS: Final = string.digits + string.ascii_letters
_ID_LENGTH: Final = 12
_CHECKSUM_LENGTH: Final = 6
# Matched by length, not by separator: base64url contains underscores.
ALL_ENDPOINTS: Final = "/mcp"
_ENDPOINT: Final = re.compile(r"/mcp(/[a-z][a-z0-9-]{0,19})?", re.ASCII)
_KEY: Final = re.compile(r"gth_([a-z0-9]{12})_([A-Za-z0-9_-]{43})_([A-Za-z0-9]{6})", re.ASCII)


def new_id() -> str:
    return "".join(secrets.choice(_ID_CHARACTERS) for _ in range(_ID_LENGTH))


def new_secret() -> str:
    return secrets.token_urlsafe(32)


def format_key(keyid: str, secret: str) -> str:
    stem = f"gth_{keyid}_{secret}"
    return f"{stem}_{_checksum(stem)}"


def parse_key(key: str) -> tuple[str, str] | None:
    """Return the id and the secret; None if the text is not a key or its checksum is wrong."""
    match = _KEY.fullmatch(key)
    if match is None:
        return None
    keyid, secret, check = match.groups()
    return (keyid, secret) if check == _checksum(f"gth_{keyid}_{secret}") else None


def _checksum(stem: str) -> str:
    """CRC-32 in base 62, most significant digit first."""
    rest, check = zlib.crc32(stem.encode("ascii")), ""
    for _ in range(_CHECKSUM_LENGTH):
        rest, digit = divmod(rest, len(_CHECKSUM_CHARACTERS))
        check = _CHECKSUM_CHARACTERS[digit] + check
    return check


_TEXT: Final = re.compile(r"[^\x00-\x1f\x7f]{1,256}")
_SCOPE: Final = re.compile(r"[!#-\[\]-~]{1,128}", re.ASCII)
_FLUSH_SECONDS: Final = 60.0
_MAX_PENDING_USES: Final = 10_000
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ApiKeyInfo:
    """Metadata of a key, without its secret."""

    id: str
    tenant: str
    subject: str
    kind: Literal["user", "service"]
    scopes: frozenset[str]
    groups: frozenset[str]
    label: str
    created: float
    expires: float | None
    revoked: float | None
    last_used: float | None
    """Updated at most once a minute."""
    endpoint: str = ALL_ENDPOINTS
    """MCP endpoint that the key is valid for; `/mcp` covers all endpoints."""


_Infos = list[ApiKeyInfo]
_Listeners = list[Callable[[], None]]


class ApiKeys:
    """API keys of all tenants. `verify` reads the database on every call, so a revoked key is rejected at once."""

    def __init__(self, database: Database, pepper: bytes, *, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._pepper = pepper
        self._clock = clock
        self._rows = BatchRead(self._read_rows)
        self._dummy_digest = self._digest(new_secret())
        self._pending_uses: dict[str, float] = {}
        self._flush_task: asyncio.Task[None] | None = None
        self._next_flush = time.monotonic()
        self._listeners: _Listeners = []

    async def create(
        self,
        tenant: str,
        subject: str,
        kind: Literal["user", "service"] = "user",
        scopes: Iterable[str] = DEFAULT_SCOPES,
        groups: Iterable[str] = (),
        expires: float | None = None,
        label: str = "",
        endpoint: str = ALL_ENDPOINTS,
    ) -> tuple[str, ApiKeyInfo]:
        """Create a key; return its text, which is not stored, and its metadata. Raises `Fault(INVALID_INPUT)`."""
        now = self._clock()
        info = ApiKeyInfo(
            id=new_id(),
            tenant=validate_name(tenant, "tenant"),
            subject=subject,
            kind=kind,
            scopes=frozenset(scopes),
            groups=frozenset(groups),
            label=label,
            created=now,
            expires=expires,
            revoked=None,
            last_used=None,
            endpoint=endpoint,
        )
        _validate(info)
        if expires is not None and not expires > now:
            raise Fault(Kind.INVALID_INPUT, "The expiry of a key must be in the future.")
        secret = new_secret()
        async with self._database.transaction() as connection:
            await connection.execute(_INSERT, _as_row(info, self._digest(secret)))
        return format_key(info.id, secret), info

    async def list(self, tenant: str | None = None) -> _Infos:
        """List the keys of one tenant, or of all tenants. Includes revoked and expired keys."""
        async with self._database.reading() as connection:
            if tenant is None:
                rows = await connection.execute(_LIST_ALL)
            else:
                rows = await connection.execute(_LIST, {"tenant": tenant})
        return [_from_row(row) for row in rows]

    async def revoke(self, keyid: str) -> bool:
        """Revoke a key; return False if it does not exist or is already revoked."""
        async with self._database.transaction() as connection:
            result = await connection.execute(_REVOKE, {"id": keyid, "now": self._clock()})
        for listener in self._listeners:  # without waiting for the change feed
            listener()
        return result.rowcount > 0

    async def verify(self, key: str) -> Caller | None:
        """Return the owner of a key; None if it is malformed, unknown, revoked or expired.

        Raises only `Fault(UNAVAILABLE)`.
        """
        parts = parse_key(key)
        if parts is None:
            return None
        keyid, secret = parts
        row = await self._rows.get(keyid)
        # An unknown id takes the same work as a wrong secret, so that response times do not reveal existing ids.
        known = self._dummy_digest if row is None else row.digest
        if not hmac.compare_digest(self._digest(secret), known) or row is None:
            return None
        info = _from_row(row)
        now = self._clock()
        if not _is_usable(row, now):
            return None
        self._record_use(keyid, now)
        groups, scopes = info.groups, info.scopes
        if row.user_valid_until is not None:
            # The identity provider decides what its user may do; the key can only be narrower.
            groups &= frozenset(json.loads(row.user_groups))
            scopes &= frozenset(row.user_scopes.split())
        return Caller(
            info.tenant,
            info.subject,
            info.kind,
            groups,
            scopes,
            credential=info.id,
            expires=info.expires,
            resource=info.endpoint,
        )

    async def is_active(self, keyid: str) -> bool:
        """Return whether the key exists, is neither revoked nor expired, and its user is not suspended or refused."""
        row = await self._rows.get(keyid)
        return row is not None and _is_usable(row, self._clock())

    def on_revoke(self, listener: Callable[[], None]) -> None:
        """Call `listener` within a second of a revocation in any process. Caches of verified keys use it."""
        self._listeners.append(listener)
        self._database.on_change("api_keys", lambda _ids: listener())

    async def close(self) -> None:
        """Write the pending last-used times and stop."""
        if self._flush_task is not None:
            self._flush_task.cancel()
            await asyncio.gather(self._flush_task, return_exceptions=True)
        await self._flush_uses()

    async def _read_rows(self, ids: Sequence[str]) -> dict[str, Row[Any]]:
        async with self._database.reading() as connection:
            return {row.id: row for row in await connection.execute(_FIND, {"ids": ids})}

    def _digest(self, secret: str) -> str:
        return hmac.new(self._pepper, secret.encode("ascii"), hashlib.sha256).hexdigest()

    def _record_use(self, keyid: str, now: float) -> None:
        if len(self._pending_uses) < _MAX_PENDING_USES:
            self._pending_uses[keyid] = now
        if self._flush_task is None or self._flush_task.done():
            self._flush_task = asyncio.create_task(self._flush_later())

    async def _flush_later(self) -> None:
        # One write a minute for all keys, not one per call.
        await asyncio.sleep(max(0.0, self._next_flush - time.monotonic()))
        self._next_flush = time.monotonic() + _FLUSH_SECONDS
        try:
            await self._flush_uses()
        except (Fault, SQLAlchemyError):
            _log.warning("api keys: writing last-used times failed; they are lost", exc_info=True)

    async def _flush_uses(self) -> None:
        if not self._pending_uses:
            return
        notes, self._pending_uses = self._pending_uses, {}
        async with self._database.transaction() as connection:
            await connection.execute(_UPDATE_LAST_USED, [{"id": keyid, "at": at} for keyid, at in notes.items()])


def _validate(info: ApiKeyInfo) -> None:
    if info.kind not in ("user", "service"):
        raise Fault(Kind.INVALID_INPUT, "The kind of a key must be 'user' or 'service'.")
    if not all(_TEXT.fullmatch(name) for name in (info.subject, *info.groups)):
        raise Fault(Kind.INVALID_INPUT, "A subject or group must be 1 to 256 characters without control characters.")
    if not all(_SCOPE.fullmatch(scope) for scope in info.scopes):
        raise Fault(Kind.INVALID_INPUT, "A scope must be printable ASCII without spaces, quotes and backslashes.")
    if not _ENDPOINT.fullmatch(info.endpoint):
        raise Fault(Kind.INVALID_INPUT, "The endpoint of a key must be /mcp or a path such as /mcp/support.")
    if info.label and not _TEXT.fullmatch(info.label):
        raise Fault(Kind.INVALID_INPUT, "A label must be at most 256 characters without control characters.")


def _is_usable(row: Row[Any], now: float) -> bool:
    if row.revoked_at is not None or (row.expires_at is not None and row.expires_at <= now):
        return False
    if row.user_suspended_at is not None or row.user_refused_at is not None:
        return False
    return row.user_valid_until is None or row.user_valid_until > now


def _as_row(info: ApiKeyInfo, digest: str) -> dict[str, Any]:
    return {
        "tenant": info.tenant,
        "id": info.id,
        "digest": digest,
        "subject": info.subject,
        "kind": info.kind,
        "scopes": " ".join(sorted(info.scopes)),
        "member_of": json.dumps(sorted(info.groups)),
        "label": info.label,
        "created": info.created,
        "expires": info.expires,
        "endpoint": info.endpoint,
    }


def _from_row(row: Row[Any]) -> ApiKeyInfo:
    return ApiKeyInfo(
        id=row.id,
        tenant=row.tenant,
        subject=row.subject,
        kind=row.kind,
        scopes=frozenset(row.scopes.split()),
        groups=frozenset(json.loads(row.member_of)),
        label=row.label,
        created=row.created_at,
        expires=row.expires_at,
        revoked=row.revoked_at,
        last_used=row.last_used_at,
        endpoint=row.endpoint,
    )


_INSERT = text(
    "INSERT INTO api_keys (tenant, id, digest, subject, kind, scopes, member_of, label, created_at, expires_at,"
    " endpoint) VALUES (:tenant, :id, :digest, :subject, :kind, :scopes, :member_of, :label, :created, :expires,"
    " :endpoint)"
)

# A key may belong to a subject that is not a user of the gateway.
_FIND = text(
    "SELECT api_keys.*, users.suspended_at AS user_suspended_at, users.refused_at AS user_refused_at,"
    " users.valid_until AS user_valid_until, users.scopes AS user_scopes, users.member_of AS user_groups"
    " FROM api_keys LEFT JOIN users ON api_keys.kind = 'user' AND users.tenant = api_keys.tenant"
    " AND users.subject = api_keys.subject WHERE api_keys.id IN :ids"
).bindparams(bindparam("ids", expanding=True))
_LIST_ALL = text("SELECT * FROM api_keys ORDER BY tenant, created_at, id")
_LIST = text("SELECT * FROM api_keys WHERE tenant = :tenant ORDER BY created_at, id")
_REVOKE = text("UPDATE api_keys SET revoked_at = :now WHERE id = :id AND revoked_at IS NULL")
_UPDATE_LAST_USED = text("UPDATE api_keys SET last_used_at = :at WHERE id = :id")
