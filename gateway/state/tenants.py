"""Tenants: who may be served, with which backends. Kept in the database, read from memory."""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.errors import Fault, Kind
from gateway.state.database import Database
from gateway.state.private_files import checked


@dataclass(frozen=True, slots=True)
class Tenant:
    name: str
    read_only: bool = False
    """Either the settings or an operator said so."""
    suspended: bool = False
    backends: tuple[str, ...] = ("*",)
    """Patterns of the namespaces it may use."""
    servers: tuple[str, ...] = ("*",)
    """Patterns of the virtual servers it may enter."""


class TenantChange(TypedDict, total=False):
    """What to set; what it does not name stays as it is."""

    read_only: bool
    suspended: bool
    backends: Sequence[str]
    servers: Sequence[str]


class Tenants:
    """Open it with `Tenants.open`; `get` and `all` are then lookups in memory, at most a second old."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._tenants: dict[str, Tenant] = {}
        self._listeners: list[Callable[[], None]] = []
        self._loading = asyncio.Lock()

    @classmethod
    async def open(cls, database: Database) -> "Tenants":
        tenants = cls(database)
        await database.follow(tenants._load)
        return tenants

    def get(self, name: str) -> Tenant | None:
        return self._tenants.get(name)

    def all(self) -> list[Tenant]:
        return list(self._tenants.values())

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` within a second of any change, in whichever process."""
        self._listeners.append(listener)

    async def apply(self, settings: Mapping[str, TenantChange]) -> None:
        """Set what the settings say. Their `read_only` lifts only their own word, never an operator's."""
        await self._write(settings, "read_only_by_settings")

    async def add(self, name: str, change: TenantChange) -> None:
        """Make a tenant. Raises `Fault(ILLEGAL_STATE)` when there is one of that name."""
        async with self._database.transaction() as connection:
            made = await connection.execute(_INSERT, {"name": checked(name, "tenant")})
            if made.rowcount == 0:
                raise Fault(Kind.ILLEGAL_STATE, f"There is a tenant named {name} already.")
            await _set(connection, name, _columns(change, "read_only"))
        await self._load()

    async def change(self, name: str, change: TenantChange) -> None:
        """Set what an operator says. Raises `Fault(NOT_FOUND)` when there is no such tenant."""
        if name not in self._tenants:
            raise Fault(Kind.NOT_FOUND, f"No tenant is named {name}.")
        await self._write({name: change}, "read_only")

    async def _write(self, changes: Mapping[str, TenantChange], read_only_column: str) -> None:
        async with self._database.transaction() as connection:
            for name, change in changes.items():
                await connection.execute(_INSERT, {"name": checked(name, "tenant")})
                await _set(connection, name, _columns(change, read_only_column))
        await self._load()

    async def _load(self) -> None:
        async with self._loading:  # or an older reading could come in last
            async with self._database.reading() as connection:
                rows = await connection.execute(_SELECT)
            read = [
                Tenant(name, bool(read_only), bool(suspended), tuple(json.loads(backends)), tuple(json.loads(servers)))
                for name, read_only, suspended, backends, servers in rows
            ]
        # What did not change stays the same object: whoever remembers it need not compare it.
        known = self._tenants
        self._tenants = {each.name: known[each.name] if known.get(each.name) == each else each for each in read}
        if self._tenants != known:
            for listener in self._listeners:
                listener()


async def _set(connection: AsyncConnection, name: str, columns: Mapping[str, Any]) -> None:
    for column, value in columns.items():
        statement = text(f"UPDATE tenants SET {column} = :value WHERE name = :name")  # noqa: S608 - our own columns
        await connection.execute(statement, {"value": value, "name": name})


_INSERT = text("INSERT INTO tenants (name) VALUES (:name) ON CONFLICT (name) DO NOTHING")
_SELECT = text(
    "SELECT name, read_only OR read_only_by_settings, suspended, backends, servers FROM tenants ORDER BY name"
)


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
