"""How a key is written: `gth_<id>_<secret>_<check>`.

The check lets a typo be seen, and a leaked key be found, without asking anybody.

API keys: shown once, stored as a keyed digest of the secret.
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
from gateway.contract.caller import EVERYDAY
from gateway.errors import Fault, Kind
from gateway.state.database import BatchRead, Database
from gateway.state.private_files import checked

_ID_CHARACTERS: Final = string.ascii_lowercase + string.digits

_CHECK_CHARACTERS: Final = string.digits + string.ascii_letters

_ID_LENGTH: Final = 12

_CHECK_LENGTH: Final = 6
# By length, not by separator: base64url has underscores of its own.
_KEY: Final = re.compile(r"gth_([a-z0-9]{12})_([A-Za-z0-9_-]{43})_([A-Za-z0-9]{6})", re.ASCII)


def new_id() -> str:
    return "".join(secrets.choice(_ID_CHARACTERS) for _ in range(_ID_LENGTH))


def new_secret() -> str:
    return secrets.token_urlsafe(32)


def spell(keyid: str, secret: str) -> str:
    stem = f"gth_{keyid}_{secret}"
    return f"{stem}_{_check(stem)}"


def parse(key: str) -> tuple[str, str] | None:
    """The id and the secret; None when it is no key, or one with a typo."""
    match = _KEY.fullmatch(key)
    if match is None:
        return None
    keyid, secret, check = match.groups()
    return (keyid, secret) if check == _check(f"gth_{keyid}_{secret}") else None


def _check(stem: str) -> str:
    """CRC-32 in base 62, most significant digit first."""
    rest, check = zlib.crc32(stem.encode("ascii")), ""
    for _ in range(_CHECK_LENGTH):
        rest, digit = divmod(rest, len(_CHECK_CHARACTERS))
        check = _CHECK_CHARACTERS[digit] + check
    return check


DEFAULT_SCOPES: Final = EVERYDAY

_WORDS: Final = re.compile(r"[^\x00-\x1f\x7f]{1,256}")

_SCOPE: Final = re.compile(r"[!#-\[\]-~]{1,128}", re.ASCII)

_NOTE_EVERY: Final = 60.0

_NOTED_KEYS: Final = 10_000

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ApiKeyInfo:
    """Everything about a key but its secret."""

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
    """To the minute."""


_Infos = list[ApiKeyInfo]


class ApiKeys:
    """The keys of all tenants. `verify` reads the database each time, so a revoked key is refused at once."""

    def __init__(self, database: Database, pepper: bytes, *, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._pepper = pepper
        self._clock = clock
        self._rows = BatchRead(self._find)
        self._nobody = self._digest(new_secret())
        self._notes: dict[str, float] = {}
        self._noting: asyncio.Task[None] | None = None
        self._next_note = time.monotonic()

    async def create(
        self,
        tenant: str,
        subject: str,
        kind: Literal["user", "service"] = "user",
        scopes: Iterable[str] = DEFAULT_SCOPES,
        groups: Iterable[str] = (),
        expires: float | None = None,
        label: str = "",
    ) -> tuple[str, ApiKeyInfo]:
        """A new key's text, which is nowhere kept, and what is. Raises `Fault(INVALID_INPUT)`."""
        now = self._clock()
        info = ApiKeyInfo(
            id=new_id(),
            tenant=checked(tenant, "tenant"),
            subject=subject,
            kind=kind,
            scopes=frozenset(scopes),
            groups=frozenset(groups),
            label=label,
            created=now,
            expires=expires,
            revoked=None,
            last_used=None,
        )
        _check_words(info)
        if expires is not None and not expires > now:
            raise Fault(Kind.INVALID_INPUT, "A key's expiry must lie in the future.")
        secret = new_secret()
        async with self._database.transaction() as connection:
            await connection.execute(_INSERT, _as_row(info, self._digest(secret)))
        return spell(info.id, secret), info

    async def list(self, tenant: str | None = None) -> _Infos:
        """All keys, of one tenant if it is named: revoked and expired ones too."""
        async with self._database.reading() as connection:
            if tenant is None:
                rows = await connection.execute(_LIST_ALL)
            else:
                rows = await connection.execute(_LIST, {"tenant": tenant})
        return [_from_row(row) for row in rows]

    async def revoke(self, keyid: str) -> bool:
        """False when there is no such key or it was revoked before."""
        async with self._database.transaction() as connection:
            result = await connection.execute(_REVOKE, {"id": keyid, "now": self._clock()})
        return result.rowcount > 0

    async def verify(self, key: str) -> Caller | None:
        """Whose key it is; None when it is not a key, unknown, revoked or expired. Raises only `Fault(UNAVAILABLE)`."""
        parts = parse(key)
        if parts is None:
            return None
        keyid, secret = parts
        row = await self._rows.get(keyid)
        # An unknown id takes the same work as a wrong secret, so that time does not tell which ids exist.
        known = self._nobody if row is None else row.digest
        if not hmac.compare_digest(self._digest(secret), known) or row is None:
            return None
        info = _from_row(row)
        now = self._clock()
        if info.revoked is not None or (info.expires is not None and info.expires <= now):
            return None
        self._note(keyid, now)
        return Caller(
            info.tenant, info.subject, info.kind, info.groups, info.scopes, credential=info.id, expires=info.expires
        )

    async def good(self, keyid: str) -> bool:
        """Whether the key of that id could still be used."""
        row = await self._rows.get(keyid)
        if row is None:
            return False
        info = _from_row(row)
        return info.revoked is None and (info.expires is None or info.expires > self._clock())

    async def on_revoke(self, listener: Callable[[], None]) -> None:
        """Call `listener` within a second of any revocation, in whichever process: for caches of verified keys."""
        before: int | None = None

        async def load() -> None:
            nonlocal before
            async with self._database.reading() as connection:
                revoked: int = (await connection.execute(_COUNT_REVOKED)).scalar_one()
            if before is not None and revoked != before:
                listener()
            before = revoked

        await self._database.follow(load)

    async def close(self) -> None:
        """Write down the last uses not yet noted."""
        if self._noting is not None:
            self._noting.cancel()
            await asyncio.gather(self._noting, return_exceptions=True)
        await self._write_notes()

    async def _find(self, ids: Sequence[str]) -> dict[str, Row[Any]]:
        async with self._database.reading() as connection:
            return {row.id: row for row in await connection.execute(_FIND, {"ids": ids})}

    def _digest(self, secret: str) -> str:
        return hmac.new(self._pepper, secret.encode("ascii"), hashlib.sha256).hexdigest()

    def _note(self, keyid: str, now: float) -> None:
        if len(self._notes) < _NOTED_KEYS:
            self._notes[keyid] = now
        if self._noting is None or self._noting.done():
            self._noting = asyncio.create_task(self._keep_noting())

    async def _keep_noting(self) -> None:
        # All keys' uses are written together, once a minute: every commit makes others look for changes.
        await asyncio.sleep(max(0.0, self._next_note - time.monotonic()))
        self._next_note = time.monotonic() + _NOTE_EVERY
        try:
            await self._write_notes()
        except (Fault, SQLAlchemyError):
            _log.warning("when keys were last used could not be noted", exc_info=True)

    async def _write_notes(self) -> None:
        if not self._notes:
            return
        notes, self._notes = self._notes, {}
        async with self._database.transaction() as connection:
            await connection.execute(_USED, [{"id": keyid, "at": at} for keyid, at in notes.items()])


def _check_words(info: ApiKeyInfo) -> None:
    if info.kind not in ("user", "service"):
        raise Fault(Kind.INVALID_INPUT, "A key is a user's or a service's.")
    if not all(_WORDS.fullmatch(word) for word in (info.subject, *info.groups)):
        raise Fault(Kind.INVALID_INPUT, "A subject or group is 1 to 256 characters without control characters.")
    if not all(_SCOPE.fullmatch(scope) for scope in info.scopes):
        raise Fault(Kind.INVALID_INPUT, "A scope is printable ASCII without spaces, quotes and backslashes.")
    if info.label and not _WORDS.fullmatch(info.label):
        raise Fault(Kind.INVALID_INPUT, "A label is at most 256 characters without control characters.")


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
    )


_INSERT = text(
    "INSERT INTO api_keys (tenant, id, digest, subject, kind, scopes, member_of, label, created_at, expires_at)"
    " VALUES (:tenant, :id, :digest, :subject, :kind, :scopes, :member_of, :label, :created, :expires)"
)

_FIND = text("SELECT * FROM api_keys WHERE id IN :ids").bindparams(bindparam("ids", expanding=True))

_LIST_ALL = text("SELECT * FROM api_keys ORDER BY tenant, created_at, id")

_LIST = text("SELECT * FROM api_keys WHERE tenant = :tenant ORDER BY created_at, id")

_REVOKE = text("UPDATE api_keys SET revoked_at = :now WHERE id = :id AND revoked_at IS NULL")

_COUNT_REVOKED = text("SELECT count(revoked_at) FROM api_keys")

_USED = text("UPDATE api_keys SET last_used_at = :at WHERE id = :id")
