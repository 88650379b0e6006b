"""Tenants and their restrictions: backends, virtual servers, read-only mode, suspension.

They are stored in the database and read from memory on every call.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from sqlalchemy import bindparam, text
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.errors import Fault, Kind
from gateway.state.changes import Keys
from gateway.state.database import Database
from gateway.state.private_files import validate_name


@dataclass(frozen=True, slots=True)
class Tenant:
    """One tenant. An unchanged tenant stays the same object across reloads."""

    name: str
    read_only: bool = False
    """Set by the settings, by an operator, or by both."""
    suspended: bool = False
    backends: tuple[str, ...] = ("*",)
    """Patterns of the backend namespaces that the tenant may use."""
    servers: tuple[str, ...] = ("*",)
    """Patterns of the virtual servers that the tenant may connect to."""


class TenantChange(TypedDict, total=False):
    """Fields to set. A missing key leaves its field unchanged."""

    read_only: bool
    suspended: bool
    backends: Sequence[str]
    servers: Sequence[str]


class Tenants:
    """All tenants. Open it with `Tenants.open`. `get` and `all` read from memory, which is at most a second old."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._tenants: dict[str, Tenant] = {}
        self._listeners: list[Callable[[], None]] = []
        self._loading = asyncio.Lock()

    @classmethod
    async def open(cls, database: Database) -> "Tenants":
        tenants = cls(database)
        await database.follow("tenants", tenants._load)
        return tenants

    def get(self, name: str) -> Tenant | None:
        return self._tenants.get(name)

    def all(self) -> list[Tenant]:
        return list(self._tenants.values())

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` within a second of a change by any process."""
        self._listeners.append(listener)

    async def apply(self, settings: Mapping[str, TenantChange]) -> None:
        """Apply the tenants of the settings. A `read_only: false` here does not lift an operator's read-only flag."""
        await self._write(settings, "read_only_by_settings")

    async def add(self, name: str, change: TenantChange) -> None:
        """Create a tenant. Raises `Fault(ILLEGAL_STATE)` when the name is taken."""
        async with self._database.transaction() as connection:
            inserted = await connection.execute(_INSERT, {"name": validate_name(name, "tenant")})
            if inserted.rowcount == 0:
                raise Fault(Kind.ILLEGAL_STATE, f"There is a tenant named {name} already.")
            await _update(connection, name, _columns(change, "read_only"))
        await self._load(frozenset((name,)))

    async def change(self, name: str, change: TenantChange) -> None:
        """Apply an operator's change. Raises `Fault(NOT_FOUND)` when the tenant does not exist."""
        if name not in self._tenants:
            raise Fault(Kind.NOT_FOUND, f"No tenant is named {name}.")
        await self._write({name: change}, "read_only")

    async def _write(self, changes: Mapping[str, TenantChange], read_only_column: str) -> None:
        async with self._database.transaction() as connection:
            for name, change in changes.items():
                await connection.execute(_INSERT, {"name": validate_name(name, "tenant")})
                await _update(connection, name, _columns(change, read_only_column))
        await self._load(frozenset(changes))

    async def _load(self, names: Keys) -> None:
        if names is not None and not names:
            return
        async with self._loading:  # keeps an older result from replacing a newer one
            async with self._database.reading() as connection:
                if names is None:
                    rows = await connection.execute(_SELECT)
                else:
                    rows = await connection.execute(_SELECT_NAMED, {"names": list(names)})
            loaded = [
                Tenant(name, bool(read_only), bool(suspended), tuple(json.loads(backends)), tuple(json.loads(servers)))
                for name, read_only, suspended, backends, servers in rows
            ]
            known = self._tenants
            kept = [] if names is None else [tenant for tenant in known.values() if tenant.name not in names]
            # Unchanged tenants keep their object, so that callers can compare by identity.
            self._tenants = {
                tenant.name: known[tenant.name] if known.get(tenant.name) == tenant else tenant
                for tenant in sorted((*kept, *loaded), key=lambda tenant: tenant.name)
            }
            changed = self._tenants != known
        if changed:
            for listener in self._listeners:
                listener()


async def _update(connection: AsyncConnection, name: str, columns: Mapping[str, Any]) -> None:
    for column, value in columns.items():
        statement = text(f"UPDATE tenants SET {column} = :value WHERE name = :name")  # noqa: S608 - constant columns
        await connection.execute(statement, {"value": value, "name": name})


_INSERT = text("INSERT INTO tenants (name) VALUES (:name) ON CONFLICT (name) DO NOTHING")
_COLUMNS = "SELECT name, read_only OR read_only_by_settings, suspended, backends, servers FROM tenants"
_SELECT = text(_COLUMNS)
_SELECT_NAMED = text(f"{_COLUMNS} WHERE name IN :names").bindparams(bindparam("names", expanding=True))


def _columns(change: TenantChange, read_only_column: str) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    if "read_only" in change:
        columns[read_only_column] = change["read_only"]
    if "suspended" in change:
        columns["suspended"] = change["suspended"]
    if "backends" in change:
        columns["backends"] = json.dumps(list(change["backends"]))
    if "servers" in change:
        columns["servers"] = json.dumps(list(change["servers"]))
    return columns
