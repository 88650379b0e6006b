"""Users and groups that SCIM provisioned, by tenant. The documents are stored as the SCIM client sent them."""

import json
import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from sqlalchemy import Row, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.contract import Json
from gateway.state.database import Database

ResourceKind = Literal["User", "Group"]


class NameTaken(Exception):
    """Another user of the tenant has the same user name."""


@dataclass(frozen=True, slots=True)
class ScimRecord:
    """A stored user or group. `name` is the user name or display name; a group is always active."""

    id: str
    name: str
    external_id: str
    active: bool
    document: Json
    created: float
    updated: float


class ScimDirectory:
    def __init__(self, database: Database, *, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    # ---- links to users of identity providers

    async def provisioned_groups(self, provider: str, tenant: str, scim_value: str) -> frozenset[str] | None:
        """Return the names of a user's groups; None if the user was deactivated or deleted.

        Without a token for this provider, or without a user with this external id, there are no groups.
        """
        one = {"provider": provider, "tenant": tenant, "external": scim_value}
        async with self._database.reading() as connection:
            users = (await connection.execute(_LINKED_USERS, one)).all()
            if any(user.active == 0 or user.deleted_at is not None for user in users):
                return None
            names: set[str] = set()
            for user in users:
                rows = await connection.execute(_GROUPS_OF, {"tenant": tenant, "user": user.id})
                names |= {_from_row(row).name for row in rows}
        return frozenset(names)

    async def external_ids(self, tenant: str, users: Iterable[str]) -> frozenset[str]:
        """Return the external ids of users, also of deleted ones."""
        async with self._database.reading() as connection:
            rows = [
                (await connection.execute(_FIND_ANY, {"tenant": tenant, "kind": "User", "id": user})).one_or_none()
                for user in users
            ]
        return frozenset(row.external_id for row in rows if row is not None and row.external_id)

    # ---- resources

    async def find(self, tenant: str, kind: ResourceKind, id: str) -> ScimRecord | None:
        async with self._database.reading() as connection:
            row = (await connection.execute(_FIND, {"tenant": tenant, "kind": kind, "id": id})).one_or_none()
        return None if row is None else _from_row(row)

    async def list(
        self, tenant: str, kind: ResourceKind, *, name: str | None = None, external_id: str | None = None
    ) -> "list[ScimRecord]":
        """List resources in the order of their creation, optionally those with one name or external id only."""
        values = {"tenant": tenant, "kind": kind}
        async with self._database.reading() as connection:
            if name is not None:
                rows = await connection.execute(_LIST_NAME, {**values, "name": name.casefold()})
            elif external_id is not None:
                rows = await connection.execute(_LIST_EXTERNAL, {**values, "external": external_id})
            else:
                rows = await connection.execute(_LIST, values)
        return [_from_row(row) for row in rows]

    async def create(
        self, tenant: str, kind: ResourceKind, document: Json, *, name: str, external_id: str, active: bool
    ) -> ScimRecord:
        """Create a resource. A user replaces deleted ones with the same external id. Raises `NameTaken`."""
        now = self._clock()
        row = {
            "tenant": tenant,
            "kind": kind,
            "id": secrets.token_hex(16),
            "name": name.casefold(),
            "external": external_id,
            "active": int(active),
            "document": json.dumps(document),
            "now": now,
        }
        try:
            async with self._database.transaction() as connection:
                if external_id:
                    await connection.execute(_FORGET_DELETED, row)
                await connection.execute(_INSERT, row)
                await self._save_members(connection, tenant, kind, str(row["id"]), document)
        except IntegrityError as exc:
            raise NameTaken from exc
        return ScimRecord(str(row["id"]), name, external_id, active, document, now, now)

    async def update(
        self, tenant: str, kind: ResourceKind, id: str, document: Json, *, name: str, external_id: str, active: bool
    ) -> ScimRecord | None:
        """Replace a resource; return None if it does not exist. Raises `NameTaken`."""
        row = {
            "tenant": tenant,
            "kind": kind,
            "id": id,
            "name": name.casefold(),
            "external": external_id,
            "active": int(active),
            "document": json.dumps(document),
            "now": self._clock(),
        }
        try:
            async with self._database.transaction() as connection:
                if (await connection.execute(_UPDATE, row)).rowcount == 0:
                    return None
                await self._save_members(connection, tenant, kind, id, document)
        except IntegrityError as exc:
            raise NameTaken from exc
        return await self.find(tenant, kind, id)

    async def delete(self, tenant: str, kind: ResourceKind, id: str) -> bool:
        one = {"tenant": tenant, "kind": kind, "id": id, "now": self._clock()}
        async with self._database.transaction() as connection:
            deleted = await connection.execute(_MARK_DELETED if kind == "User" else _DELETE, one)
            await connection.execute(_DELETE_MEMBERS if kind == "Group" else _DELETE_MEMBERSHIPS, one)
        return deleted.rowcount > 0

    async def groups_of(self, tenant: str, user: str) -> "list[ScimRecord]":
        async with self._database.reading() as connection:
            return [_from_row(row) for row in await connection.execute(_GROUPS_OF, {"tenant": tenant, "user": user})]

    async def _save_members(
        self, connection: AsyncConnection, tenant: str, kind: ResourceKind, id: str, document: Json
    ) -> None:
        if kind != "Group":
            return
        await connection.execute(_DELETE_MEMBERS, {"tenant": tenant, "id": id})
        rows = [{"tenant": tenant, "group": id, "user": user} for user in sorted(member_ids(document))]
        if rows:
            await connection.execute(_INSERT_MEMBER, rows)


def member_ids(document: Json) -> frozenset[str]:
    members: Any = document.get("members")
    listed = cast("list[Json]", members) if isinstance(members, list) else []
    return frozenset(str(each.get("value")) for each in listed)


def _from_row(row: Row[Any]) -> ScimRecord:
    document: Json = json.loads(row.document)
    name = str(document.get("userName") or document.get("displayName") or row.name)
    return ScimRecord(row.id, name, row.external_id, row.active != 0, document, row.created_at, row.updated_at)


_LIVE: Final = "tenant = :tenant AND kind = :kind AND deleted_at IS NULL"
_ONE: Final = "tenant = :tenant AND kind = :kind AND id = :id"
_LINKED_USERS = text(
    "SELECT resource.* FROM scim_resources AS resource JOIN scim_tokens ON scim_tokens.tenant = resource.tenant"
    " WHERE resource.tenant = :tenant AND scim_tokens.provider = :provider AND resource.kind = 'User'"
    " AND resource.external_id = :external"
)
_GROUPS_OF = text(
    "SELECT resource.* FROM scim_members AS member JOIN scim_resources AS resource"
    " ON resource.tenant = member.tenant AND resource.kind = 'Group' AND resource.id = member.group_id"
    " WHERE member.tenant = :tenant AND member.user_id = :user AND resource.deleted_at IS NULL"
)
_FIND = text(f"SELECT * FROM scim_resources WHERE {_ONE} AND deleted_at IS NULL")  # noqa: S608 - fixed conditions
_FIND_ANY = text(f"SELECT * FROM scim_resources WHERE {_ONE}")  # noqa: S608
_LIST = text(f"SELECT * FROM scim_resources WHERE {_LIVE} ORDER BY created_at, id")  # noqa: S608
_LIST_NAME = text(f"SELECT * FROM scim_resources WHERE {_LIVE} AND name = :name")  # noqa: S608
_LIST_EXTERNAL = text(f"SELECT * FROM scim_resources WHERE {_LIVE} AND external_id = :external")  # noqa: S608
_INSERT = text(
    "INSERT INTO scim_resources (tenant, kind, id, name, external_id, active, document, created_at, updated_at)"
    " VALUES (:tenant, :kind, :id, :name, :external, :active, :document, :now, :now)"
)
_UPDATE = text(
    "UPDATE scim_resources SET name = :name, external_id = :external, active = :active, document = :document,"
    " updated_at = :now WHERE tenant = :tenant AND kind = :kind AND id = :id AND deleted_at IS NULL"
)
_MARK_DELETED = text(f"UPDATE scim_resources SET deleted_at = :now WHERE {_ONE} AND deleted_at IS NULL")  # noqa: S608
_FORGET_DELETED = text(
    "DELETE FROM scim_resources WHERE tenant = :tenant AND kind = :kind AND external_id = :external"
    " AND deleted_at IS NOT NULL"
)
_DELETE = text(f"DELETE FROM scim_resources WHERE {_ONE}")  # noqa: S608
_INSERT_MEMBER = text("INSERT INTO scim_members (tenant, group_id, user_id) VALUES (:tenant, :group, :user)")
_DELETE_MEMBERS = text("DELETE FROM scim_members WHERE tenant = :tenant AND group_id = :id")
_DELETE_MEMBERSHIPS = text("DELETE FROM scim_members WHERE tenant = :tenant AND user_id = :id")
