"""Database rows of the catalogue: the lists last read from each backend, and the pinned tool definitions.

`gateway.wiring.catalogue.DatabaseListingStore` uses them. The column `whose` holds the isolation key of a list: whose
credential it was read with.
"""

import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from sqlalchemy import text

from gateway.state.changes import Keys
from gateway.state.database import Database

ListKey = tuple[str, str]
"""A backend's namespace and the isolation key of its lists."""


@dataclass(frozen=True, slots=True)
class PinChange:
    """The last change of a tool's definition."""

    tool: str
    parts: tuple[str, ...]
    at: float
    accepted: bool


class CatalogueRows:
    """Reads and writes the catalogue's rows."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    async def follow_pins(self, load: Callable[[], Awaitable[None]]) -> None:
        """Run `load` now, and after a change of any pin by any process."""

        async def load_all(_namespaces: Keys) -> None:
            await load()

        await self._database.follow("catalogue_pins", load_all)

    async def get_lists(self, namespace: str, isolation_key: str, origin: str) -> tuple[str, float] | None:
        """Return the encoded lists and the time they were read, or None when none are stored for this origin."""
        async with self._database.reading() as connection:
            rows = await connection.execute(_SELECT_LISTS, {"namespace": namespace, "whose": isolation_key})
            row = rows.first()
        return (row[1], row[2]) if row is not None and row[0] == origin else None

    async def save_lists(self, namespace: str, isolation_key: str, origin: str, lists: str, read_at: float) -> None:
        row = {"namespace": namespace, "whose": isolation_key, "origin": origin, "lists": lists, "good_at": read_at}
        async with self._database.transaction() as connection:
            await connection.execute(_UPSERT_LISTS, row)

    async def save_pins(
        self, namespace: str, isolation_key: str, pins: Mapping[str, tuple[str, Mapping[str, str]]], *, accept: bool
    ) -> dict[str, Mapping[str, str]]:
        """Store the definition of each tool as (digest, parts). Returns the previous parts of the tools that changed.

        Unless `accept` is set, a changed tool stays unpinned until an operator accepts the change.
        """
        key = {"namespace": namespace, "whose": isolation_key}
        async with self._database.reading() as connection:
            rows = await connection.execute(_SELECT_PINS, key)
            known: dict[str, tuple[str, str]] = {tool: (digest, parts) for tool, digest, parts in rows}
        changed_pins = {tool: each for tool, each in pins.items() if tool not in known or known[tool][0] != each[0]}
        if not changed_pins:
            return {}
        replaced: dict[str, Mapping[str, str]] = {}
        now = self._clock()
        async with self._database.transaction() as connection:
            for tool, (digest, parts) in changed_pins.items():
                row = {**key, "tool": tool, "digest": digest, "parts": json.dumps(dict(parts)), "now": now}
                if tool not in known:
                    await connection.execute(_INSERT_PIN, row)
                    continue
                previous: dict[str, str] = json.loads(known[tool][1])
                replaced[tool] = previous
                changed = [part for part in {**previous, **parts} if previous.get(part) != parts.get(part)]
                accepted = now if accept else None
                await connection.execute(_UPDATE_PIN, {**row, "changed": json.dumps(changed), "accepted": accepted})
        return replaced

    async def list_unpinned(self) -> dict[ListKey, frozenset[str]]:
        """Return the tools whose last change is not accepted yet."""
        async with self._database.reading() as connection:
            unpinned: dict[ListKey, set[str]] = {}
            for namespace, isolation_key, tool in await connection.execute(_SELECT_UNPINNED):
                unpinned.setdefault((namespace, isolation_key), set()).add(tool)
        return {list_key: frozenset(tools) for list_key, tools in unpinned.items()}

    async def accept(self, namespace: str, tool: str | None) -> list[str]:
        """Accept the current definitions of a backend's unpinned tools, or of one tool. Returns the accepted tools."""
        unpinned = {
            name for (ns, _), tools in (await self.list_unpinned()).items() if ns == namespace for name in tools
        }
        chosen = sorted(unpinned if tool is None else unpinned & {tool})
        async with self._database.transaction() as connection:
            for name in chosen:
                await connection.execute(_ACCEPT, {"namespace": namespace, "tool": name, "now": self._clock()})
        return chosen

    async def list_changes(self, namespace: str, tenant: str) -> list[PinChange]:
        """Return the last definition change of each tool of the backend that the tenant can see, newest first."""
        key = {"namespace": namespace, "tenant": f"tenant:{tenant}", "users": f"user:{tenant}/"}
        async with self._database.reading() as connection:
            rows = await connection.execute(_SELECT_CHANGES, key)
            latest: dict[str, PinChange] = {}
            for tool, parts, at, accepted_at in rows:
                latest.setdefault(tool, PinChange(tool, tuple(json.loads(parts)), at, accepted_at is not None))
        return list(latest.values())


_SELECT_LISTS = text(
    "SELECT origin, lists, good_at FROM catalogue_snapshots WHERE namespace = :namespace AND whose = :whose"
)
_UPSERT_LISTS = text(
    "INSERT INTO catalogue_snapshots (namespace, whose, origin, lists, good_at)"
    " VALUES (:namespace, :whose, :origin, :lists, :good_at)"
    " ON CONFLICT (namespace, whose) DO UPDATE"
    " SET origin = excluded.origin, lists = excluded.lists, good_at = excluded.good_at"
)
_SELECT_PINS = text("SELECT tool, digest, parts FROM catalogue_pins WHERE namespace = :namespace AND whose = :whose")
_INSERT_PIN = text(
    "INSERT INTO catalogue_pins (namespace, whose, tool, digest, parts, first_seen)"
    " VALUES (:namespace, :whose, :tool, :digest, :parts, :now)"
    " ON CONFLICT (namespace, whose, tool) DO NOTHING"
)
_UPDATE_PIN = text(
    "UPDATE catalogue_pins SET digest = :digest, parts = :parts, changed_at = :now, changed_parts = :changed,"
    " accepted_at = :accepted"
    " WHERE namespace = :namespace AND whose = :whose AND tool = :tool"
)
_SELECT_UNPINNED = text(
    "SELECT namespace, whose, tool FROM catalogue_pins WHERE changed_at IS NOT NULL AND accepted_at IS NULL"
)
_ACCEPT = text(
    "UPDATE catalogue_pins SET accepted_at = :now"
    " WHERE namespace = :namespace AND tool = :tool AND changed_at IS NOT NULL AND accepted_at IS NULL"
)
_SELECT_CHANGES = text(
    "SELECT tool, changed_parts, changed_at, accepted_at FROM catalogue_pins"
    " WHERE namespace = :namespace AND changed_at IS NOT NULL"
    " AND (whose IN ('shared', :tenant) OR substr(whose, 1, length(:users)) = :users) ORDER BY changed_at DESC"
)
