"""Users who sign in at an identity provider, stored beside the local users.

An account is the pair of issuer and subject at the provider. At the gateway its subject is `PROVIDER:SUBJECT`; names of
local users contain no colon, so the two never coincide.
"""

import hashlib
import hmac
import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.auth.browser_sessions import UserKey
from gateway.auth.providers.identity import Access, ProviderIdentity, SignInRefused
from gateway.auth.sealing import Sealer
from gateway.auth.users import Users
from gateway.contract import Json
from gateway.state.database import Database

_PLAIN_SUBJECT: Final = re.compile(r"[A-Za-z0-9._@+|=-]{1,128}", re.ASCII)
_SESSION_SECONDS: Final = 30 * 86400.0


@dataclass(frozen=True, slots=True)
class FederatedUser:
    """A user of a provider. `credential` asks the provider about the user again; empty if there is none."""

    tenant: str
    subject: str
    provider: str
    issuer: str
    external_subject: str
    display_name: str
    email: str
    provider_groups: frozenset[str]
    """Groups in the provider's tokens at the last check."""
    scim_value: str
    signed_in_at: float
    checked_at: float
    sealed: str | None

    @property
    def key(self) -> UserKey:
        return self.tenant, self.subject


class FederatedUsers:
    def __init__(
        self, database: Database, users: Users, sealer: Sealer, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._database = database
        self._users = users
        self._sealer = sealer
        self._clock = clock

    async def find(self, user: UserKey) -> FederatedUser | None:
        return await self._read(_FIND_USER, tenant=user[0], subject=user[1])

    async def find_account(self, issuer: str, external_subject: str) -> FederatedUser | None:
        return await self._read(_FIND_ACCOUNT, issuer=issuer, external=external_subject)

    async def find_session(self, issuer: str, sid: str) -> FederatedUser | None:
        """Return the user of a session at the provider."""
        return await self._read(_FIND_SESSION, issuer=issuer, sid=sid, now=self._clock())

    async def list(self) -> list[FederatedUser]:
        async with self._database.reading() as connection:
            return [_from_row(row) for row in await connection.execute(_LIST)]

    async def linked(self, tenant: str, provider: str, scim_value: str) -> "list[FederatedUser]":
        """Return the users of this provider whose SCIM claim has this value."""
        one = {"tenant": tenant, "provider": provider, "value": scim_value}
        async with self._database.reading() as connection:
            return [_from_row(row) for row in await connection.execute(_LINKED, one)]

    def credential(self, user: FederatedUser) -> Json:
        if user.sealed is None:
            return {}
        return self._sealer.open(user.sealed, _context(user.issuer, user.external_subject)) or {}

    async def save(
        self, provider: str, identity: ProviderIdentity, access: Access, *, valid_until: float, signed_in: bool
    ) -> UserKey:
        """Create or update a user as the provider described it. Raises `SignInRefused` if the user is suspended.

        A user who lost a group or scope, or whose tenant changed, gets new tokens at the next refresh or sign-in.
        """
        now = self._clock()
        async with self._database.transaction() as connection:
            account = {"issuer": identity.issuer, "external": identity.subject}
            known = (await connection.execute(_FIND_ACCOUNT, account)).one_or_none()
            subject = known.subject if known is not None else await self._new_subject(connection, provider, identity)
            before = None
            if known is not None:
                one = {"tenant": known.tenant, "subject": known.subject}
                before = (await connection.execute(_FIND_STATE, one)).one_or_none()
            if before is not None and before.suspended_at is not None:
                raise SignInRefused("Your account is suspended at this gateway. Ask one of its administrators.")
            revoked: frozenset[str] = frozenset()
            if known is not None and known.tenant != access.tenant:
                revoked |= await self._users.remove_in_transaction(connection, known.tenant, known.subject)
            elif known is not None and before is not None and _is_reduced(before, access):
                revoked |= await self._users.revoke_in_transaction(connection, known.tenant, subject)
            row: dict[str, Any] = {
                **account,
                "tenant": access.tenant,
                "subject": subject,
                "provider": provider,
                "name": identity.name,
                "email": identity.email,
                "provider_groups": json.dumps(sorted(identity.groups)),
                "scim_value": identity.scim_value,
                "sealed": self._seal(identity),
                "signed_in_at": now if signed_in or known is None else known.signed_in_at,
                "now": now,
                "scopes": " ".join(sorted(access.scopes)),
                "member_of": json.dumps(sorted(access.groups)),
                "valid_until": valid_until,
            }
            await connection.execute(_UPSERT_USER, row)
            await connection.execute(_UPSERT, row)
            if identity.sid:
                session = {**row, "sid": identity.sid, "expires": now + _SESSION_SECONDS}
                await connection.execute(_DELETE_SESSIONS, {"now": now})
                await connection.execute(_UPSERT_SESSION, session)
        await self._users.apply_revocations(revoked)
        return access.tenant, subject

    async def change_access(self, user: FederatedUser, access: Access | None) -> None:
        """Apply rules again after a change of provisioned groups, without asking the provider."""
        if access is None or access.tenant != user.tenant:
            await self.refuse(user)
            return
        one = {"tenant": user.tenant, "subject": user.subject}
        changed = {
            **one,
            "scopes": " ".join(sorted(access.scopes)),
            "member_of": json.dumps(sorted(access.groups)),
        }
        revoked: frozenset[str] = frozenset()
        async with self._database.transaction() as connection:
            before = (await connection.execute(_FIND_STATE, one)).one_or_none()
            if before is not None and _is_reduced(before, access):
                revoked = await self._users.revoke_in_transaction(connection, *user.key)
            await connection.execute(_CHANGE_ACCESS, changed)
        await self._users.apply_revocations(revoked)

    async def refuse(self, user: FederatedUser) -> None:
        """End all access of a user whom the provider refused, until the next sign-in."""
        one = {"tenant": user.tenant, "subject": user.subject, "now": self._clock()}
        async with self._database.transaction() as connection:
            await connection.execute(_REFUSE, one)
            await connection.execute(_FORGET_CREDENTIAL, one)
            revoked = await self._users.end_sessions_in_transaction(connection, *user.key)
        await self._users.apply_revocations(revoked)

    async def interrupt(self, user: FederatedUser) -> None:
        """Stop access until the provider can be asked again. Sessions and refresh tokens are kept."""
        one = {"tenant": user.tenant, "subject": user.subject, "now": self._clock()}
        async with self._database.transaction() as connection:
            await connection.execute(_REFUSE, one)
            revoked = await self._users.revoke_in_transaction(connection, *user.key)
        await self._users.apply_revocations(revoked)

    async def lease(self, user: FederatedUser, seconds: float) -> bool:
        """Reserve the next check of a user for this process: a rotating refresh token must not be used twice."""
        now = self._clock()
        one = {"tenant": user.tenant, "subject": user.subject, "now": now, "until": now + seconds}
        async with self._database.transaction() as connection:
            return (await connection.execute(_LEASE, one)).rowcount == 1

    async def release(self, user: FederatedUser) -> None:
        async with self._database.transaction() as connection:
            await connection.execute(_RELEASE, {"tenant": user.tenant, "subject": user.subject})

    async def due(self, *, checked_before: float, recent: float, limit: int) -> "list[FederatedUser]":
        """Return the users to check: those with an API key, or with a refresh token that expires after `recent`."""
        values = {"before": checked_before, "recent": recent, "now": self._clock(), "limit": limit}
        async with self._database.reading() as connection:
            return [_from_row(row) for row in await connection.execute(_DUE, values)]

    async def expired(self, limit: int) -> "list[FederatedUser]":
        """Return the users whose access is no longer confirmed and not stopped yet."""
        async with self._database.reading() as connection:
            rows = await connection.execute(_EXPIRED, {"now": self._clock(), "limit": limit})
            return [_from_row(row) for row in rows]

    async def _read(self, statement: Any, **values: object) -> FederatedUser | None:
        async with self._database.reading() as connection:
            row = (await connection.execute(statement, values)).one_or_none()
        return None if row is None else _from_row(row)

    async def _new_subject(self, connection: AsyncConnection, provider: str, identity: ProviderIdentity) -> str:
        plain = f"{provider}:{identity.subject}"
        if _PLAIN_SUBJECT.fullmatch(identity.subject):
            # After a change of the issuer in the settings, the same subject is another account.
            taken = (await connection.execute(_IS_TAKEN, {"subject": plain})).one_or_none()
            if taken is None:
                return plain
        digest = hashlib.sha256(f"{identity.issuer}\n{identity.subject}".encode()).hexdigest()
        return f"{provider}:{digest[:32]}"

    def _seal(self, identity: ProviderIdentity) -> str | None:
        if not identity.credential:
            return None
        return self._sealer.seal(identity.credential, _context(identity.issuer, identity.subject))


def federated_users(database: Database, users: Users, signing_secret: bytes) -> FederatedUsers:
    """Open the users of providers. The key that seals the providers' tokens is derived from the signing secret."""
    return FederatedUsers(database, users, Sealer(hmac.digest(signing_secret, b"provider tokens", "sha256")))


def _context(issuer: str, external_subject: str) -> str:
    return f"provider token\n{issuer}\n{external_subject}"


def _is_reduced(before: Row[Any], access: Access) -> bool:
    return not (_split(before.scopes) <= access.scopes and frozenset(json.loads(before.member_of)) <= access.groups)


def _split(scopes: str) -> frozenset[str]:
    return frozenset(scopes.split())


def _from_row(row: Row[Any]) -> FederatedUser:
    groups: list[str] = json.loads(row.provider_groups)
    return FederatedUser(
        tenant=row.tenant,
        subject=row.subject,
        provider=row.provider,
        issuer=row.issuer,
        external_subject=row.external_subject,
        display_name=row.display_name,
        email=row.email,
        provider_groups=frozenset(groups),
        scim_value=row.scim_value,
        signed_in_at=row.signed_in_at,
        checked_at=row.checked_at,
        sealed=row.sealed,
    )


_FIND_USER = text("SELECT * FROM federated_users WHERE tenant = :tenant AND subject = :subject")
_FIND_ACCOUNT = text("SELECT * FROM federated_users WHERE issuer = :issuer AND external_subject = :external")
_FIND_SESSION = text(
    "SELECT federated_users.* FROM provider_sessions AS session JOIN federated_users"
    " ON federated_users.tenant = session.tenant AND federated_users.subject = session.subject"
    " WHERE session.issuer = :issuer AND session.sid = :sid AND session.expires_at > :now"
)
_FIND_STATE = text("SELECT * FROM users WHERE tenant = :tenant AND subject = :subject")
_IS_TAKEN = text("SELECT 1 FROM federated_users WHERE subject = :subject LIMIT 1")
_LIST = text("SELECT * FROM federated_users ORDER BY tenant, subject")
_LINKED = text(
    "SELECT * FROM federated_users WHERE tenant = :tenant AND provider = :provider AND scim_value = :value"
    " AND scim_value <> ''"
)
_UPSERT_USER = text(
    "INSERT INTO users (tenant, subject, password, scopes, member_of, created_at, valid_until)"
    " VALUES (:tenant, :subject, NULL, :scopes, :member_of, :now, :valid_until)"
    " ON CONFLICT (tenant, subject) DO UPDATE SET scopes = excluded.scopes, member_of = excluded.member_of,"
    " valid_until = excluded.valid_until, refused_at = NULL"
)
_UPSERT = text(
    "INSERT INTO federated_users (issuer, external_subject, tenant, subject, provider, display_name, email,"
    " provider_groups, scim_value, sealed, signed_in_at, checked_at)"
    " VALUES (:issuer, :external, :tenant, :subject, :provider, :name, :email, :provider_groups, :scim_value,"
    " :sealed, :signed_in_at, :now)"
    " ON CONFLICT (issuer, external_subject) DO UPDATE SET tenant = excluded.tenant, provider = excluded.provider,"
    " display_name = excluded.display_name, email = excluded.email, provider_groups = excluded.provider_groups,"
    " scim_value = excluded.scim_value, sealed = excluded.sealed, signed_in_at = excluded.signed_in_at,"
    " checked_at = excluded.checked_at"
)
_UPSERT_SESSION = text(
    "INSERT INTO provider_sessions (issuer, sid, tenant, subject, expires_at)"
    " VALUES (:issuer, :sid, :tenant, :subject, :expires)"
    " ON CONFLICT (issuer, sid) DO UPDATE SET tenant = excluded.tenant, subject = excluded.subject,"
    " expires_at = excluded.expires_at"
)
_DELETE_SESSIONS = text("DELETE FROM provider_sessions WHERE expires_at <= :now")
_CHANGE_ACCESS = text(
    "UPDATE users SET scopes = :scopes, member_of = :member_of WHERE tenant = :tenant AND subject = :subject"
)
_REFUSE = text("UPDATE users SET refused_at = :now WHERE tenant = :tenant AND subject = :subject")
_FORGET_CREDENTIAL = text("UPDATE federated_users SET sealed = NULL WHERE tenant = :tenant AND subject = :subject")
_LEASE = text(
    "UPDATE federated_users SET lease_until = :until WHERE tenant = :tenant AND subject = :subject"
    " AND (lease_until IS NULL OR lease_until <= :now)"
)
_RELEASE = text("UPDATE federated_users SET lease_until = NULL WHERE tenant = :tenant AND subject = :subject")
_DUE = text(
    "SELECT federated_users.* FROM federated_users JOIN users"
    " ON users.tenant = federated_users.tenant AND users.subject = federated_users.subject"
    " WHERE federated_users.sealed IS NOT NULL AND federated_users.checked_at <= :before"
    " AND users.suspended_at IS NULL"
    " AND (federated_users.lease_until IS NULL OR federated_users.lease_until <= :now)"
    " AND (EXISTS (SELECT 1 FROM api_keys WHERE api_keys.tenant = users.tenant AND api_keys.subject = users.subject"
    " AND api_keys.kind = 'user' AND api_keys.revoked_at IS NULL"
    " AND (api_keys.expires_at IS NULL OR api_keys.expires_at > :now))"
    " OR EXISTS (SELECT 1 FROM refresh_tokens WHERE refresh_tokens.tenant = users.tenant"
    " AND refresh_tokens.subject = users.subject AND refresh_tokens.expires_at > :recent))"
    " ORDER BY federated_users.checked_at LIMIT :limit"
)
_EXPIRED = text(
    "SELECT federated_users.* FROM federated_users JOIN users"
    " ON users.tenant = federated_users.tenant AND users.subject = federated_users.subject"
    " WHERE users.valid_until <= :now AND users.refused_at IS NULL ORDER BY users.valid_until LIMIT :limit"
)
