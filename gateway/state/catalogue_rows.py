"""Database rows of the catalogue: the lists last read from each backend, and the pinned tool definitions.

`gateway.wiring.catalogue.DatabaseListingStore` uses them. The column `whose` holds the isolation key of a list: whose
credential it was read with.
"""

import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from sqlalchemy import TextClause, text

from gateway.state.changes import Keys
from gateway.state.database import Database

ListKey = tuple[str, str]
"""A backend's namespace and the isolation key of its lists."""
SHARED_KEY: Final = "shared"
"""Isolation key of the lists that were read with the gateway's own credential."""


@dataclass(frozen=True, slots=True)
class PinChange:
    """The last change of a tool's definition."""

    tool: str
    parts: tuple[str, ...]
    at: float
    accepted: bool
    """Whether an operator accepted it."""
    accepted_by: str = ""


@dataclass(frozen=True, slots=True)
class PinnedDefinition:
    """A tool's definition as read: one digest of all, one per part, and its text."""

    digest: str
    parts: Mapping[str, str]
    text: str


class PinDifference(NamedTuple):
    """A tool with a change that is not accepted. `accepted` is empty if it was accepted by an earlier version."""

    isolation_key: str
    tool: str
    accepted: str
    current: str


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
        self, namespace: str, isolation_key: str, definitions: Mapping[str, PinnedDefinition]
    ) -> dict[str, Mapping[str, str]]:
        """Store the definitions that were read. Returns the previous parts of the tools that changed.

        The first definition of a tool is accepted. A tool in the lists of one owner is compared with the shared
        definition until they differ. A changed tool is unpinned until an operator accepts the change or the accepted
        definition returns.
        """
        key = {"namespace": namespace, "whose": isolation_key}
        known, shared = await self._read_pins(namespace, isolation_key)
        replaced: dict[str, Mapping[str, str]] = {}
        writes: list[tuple[TextClause, dict[str, Any]]] = []
        for tool, read in definitions.items():
            before, common = known.get(tool), shared.get(tool)
            if before is None and common is not None and read.digest == common.accepted_digest:
                continue  # an owner's definition has its own row only if it differs
            if before is not None and before.digest == read.digest and before.definition:
                continue
            baseline = before or common
            if baseline is not None and baseline.digest != read.digest:
                replaced[tool] = json.loads(baseline.parts)
            row = {**key, "tool": tool, **_pin_values(read, baseline, common, self._clock())}
            writes.append((_INSERT_PIN if before is None else _UPDATE_PIN, row))
        if writes:
            async with self._database.transaction() as connection:
                for statement, row in writes:
                    await connection.execute(statement, row)
        return replaced

    async def _read_pins(self, namespace: str, isolation_key: str) -> "tuple[dict[str, _Pin], dict[str, _Pin]]":
        """The pins of these lists, and those of the shared lists if these are an owner's."""
        known: dict[str, _Pin] = {}
        shared: dict[str, _Pin] = {}
        key = {"namespace": namespace, "whose": isolation_key, "shared": SHARED_KEY}
        async with self._database.reading() as connection:
            for list_key, tool, *values in await connection.execute(_SELECT_PINS, key):
                (known if list_key == isolation_key else shared)[tool] = _Pin(*values)
        return known, shared

    async def list_accepted(self, namespace: str, isolation_key: str) -> dict[str, frozenset[str]]:
        """Return the accepted digests of each tool: of these lists and of the shared lists."""
        known, shared = await self._read_pins(namespace, isolation_key)
        accepted: dict[str, set[str]] = {}
        for tool, pin in (*known.items(), *shared.items()):
            accepted.setdefault(tool, set()).add(pin.accepted_digest)
        return {tool: frozenset(digests) for tool, digests in accepted.items()}

    async def list_unpinned(self) -> dict[ListKey, frozenset[str]]:
        """Return the tools whose last change is not accepted yet."""
        async with self._database.reading() as connection:
            unpinned: dict[ListKey, set[str]] = {}
            for namespace, isolation_key, tool in await connection.execute(_SELECT_UNPINNED):
                unpinned.setdefault((namespace, isolation_key), set()).add(tool)
        return {list_key: frozenset(tools) for list_key, tools in unpinned.items()}

    async def accept(self, namespace: str, tool: str | None, by: str = "") -> list[str]:
        """Accept the current definitions of a backend's unpinned tools, or of one tool. Returns the accepted tools."""
        chosen = sorted({each.tool for each in await self.list_differences(namespace) if tool in (None, each.tool)})
        async with self._database.transaction() as connection:
            for name in chosen:
                row = {"namespace": namespace, "tool": name, "now": self._clock(), "by": by}
                await connection.execute(_ACCEPT, row)
        return chosen

    async def list_differences(self, namespace: str) -> list[PinDifference]:
        """Return the unpinned tools of the backend with both definitions."""
        async with self._database.reading() as connection:
            rows = await connection.execute(_SELECT_DIFFERENCES, {"namespace": namespace})
            return [PinDifference(*row) for row in rows]

    async def list_changes(self, namespace: str, tenant: str) -> list[PinChange]:
        """Return the last definition change of each tool of the backend that the tenant can see, newest first.

        A tool with a change that is not accepted, in any of those lists, counts as not accepted.
        """
        key = {"namespace": namespace, "tenant": f"tenant:{tenant}", "users": f"user:{tenant}/"}
        async with self._database.reading() as connection:
            rows = await connection.execute(_SELECT_CHANGES, key)
            latest: dict[str, PinChange] = {}
            for tool, parts, at, accepted_at, accepted_by in rows:
                change = PinChange(tool, tuple(json.loads(parts)), at, accepted_at is not None, accepted_by)
                if (known := latest.setdefault(tool, change)).accepted and not change.accepted:
                    latest[tool] = replace(known, accepted=False, accepted_by="")
        return list(latest.values())


class _Pin(NamedTuple):
    """One row of `catalogue_pins`: the definition that was read last, and the accepted one."""

    digest: str
    parts: str
    definition: str
    changed_parts: str
    accepted_digest: str
    accepted_definition: str
    changed_at: float | None
    accepted_at: float | None
    accepted_by: str


def _pin_values(read: PinnedDefinition, before: _Pin | None, common: _Pin | None, now: float) -> dict[str, Any]:
    """The columns of a tool after this read."""
    values: dict[str, Any] = {"digest": read.digest, "parts": json.dumps(dict(read.parts)), "definition": read.text}
    values |= {"now": now, "accepted": None, "accepted_by": "", "changed_at": None, "changed": "[]"}
    if before is None or read.digest in (before.accepted_digest, common.accepted_digest if common else ""):
        values |= {"accepted_digest": read.digest, "accepted_definition": read.text}
        if before is not None and before.digest == read.digest:  # only the text was missing
            values |= {"changed_at": before.changed_at, "changed": before.changed_parts}
            values |= {"accepted": before.accepted_at, "accepted_by": before.accepted_by}
        return values
    previous: dict[str, str] = json.loads(before.parts)
    changed = [part for part in {**previous, **read.parts} if previous.get(part) != read.parts.get(part)]
    if before.digest != before.accepted_digest:
        changed = list(dict.fromkeys([*json.loads(before.changed_parts), *changed]))
    values |= {"accepted_digest": before.accepted_digest, "accepted_definition": before.accepted_definition}
    return values | {"changed_at": now, "changed": json.dumps(changed)}


_SELECT_LISTS = text(
    "SELECT origin, lists, good_at FROM catalogue_snapshots WHERE namespace = :namespace AND whose = :whose"
)
_UPSERT_LISTS = text(
    "INSERT INTO catalogue_snapshots (namespace, whose, origin, lists, good_at)"
    " VALUES (:namespace, :whose, :origin, :lists, :good_at)"
    " ON CONFLICT (namespace, whose) DO UPDATE"
    " SET origin = excluded.origin, lists = excluded.lists, good_at = excluded.good_at"
)
_SELECT_PINS = text(
    "SELECT whose, tool, digest, parts, definition, changed_parts, accepted_digest, accepted_definition,"
    " changed_at, accepted_at, accepted_by"
    " FROM catalogue_pins WHERE namespace = :namespace AND whose IN (:whose, :shared)"
)
_INSERT_PIN = text(
    "INSERT INTO catalogue_pins (namespace, whose, tool, digest, parts, definition, first_seen,"
    " changed_at, changed_parts, accepted_at, accepted_by, accepted_digest, accepted_definition)"
    " VALUES (:namespace, :whose, :tool, :digest, :parts, :definition, :now,"
    " :changed_at, :changed, :accepted, :accepted_by, :accepted_digest, :accepted_definition)"
    " ON CONFLICT (namespace, whose, tool) DO NOTHING"
)
_UPDATE_PIN = text(
    "UPDATE catalogue_pins SET digest = :digest, parts = :parts, definition = :definition,"
    " changed_at = :changed_at, changed_parts = :changed, accepted_at = :accepted, accepted_by = :accepted_by,"
    " accepted_digest = :accepted_digest, accepted_definition = :accepted_definition"
    " WHERE namespace = :namespace AND whose = :whose AND tool = :tool"
)
_SELECT_UNPINNED = text("SELECT namespace, whose, tool FROM catalogue_pins WHERE digest <> accepted_digest")
_SELECT_DIFFERENCES = text(
    "SELECT whose, tool, accepted_definition, definition FROM catalogue_pins"
    " WHERE namespace = :namespace AND digest <> accepted_digest ORDER BY tool, whose"
)
_ACCEPT = text(
    "UPDATE catalogue_pins SET accepted_at = :now, accepted_by = :by,"
    " accepted_digest = digest, accepted_definition = definition"
    " WHERE namespace = :namespace AND tool = :tool AND digest <> accepted_digest"
)
_SELECT_CHANGES = text(
    "SELECT tool, changed_parts, changed_at, accepted_at, accepted_by FROM catalogue_pins"
    " WHERE namespace = :namespace AND changed_at IS NOT NULL"
    " AND (whose IN ('shared', :tenant) OR substr(whose, 1, length(:users)) = :users) ORDER BY changed_at DESC"
)
