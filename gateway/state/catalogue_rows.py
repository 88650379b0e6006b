"""Rows of the catalogue: the lists as last read, and the pins of every tool. See `gateway.catalogue.persistence.Memory`."""

import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from sqlalchemy import text

from gateway.state.database import Database

Listed = tuple[str, str]
"""A backend, and whose lists."""


@dataclass(frozen=True, slots=True)
class PinChange:
    """The last change of a tool's definition."""

    tool: str
    parts: tuple[str, ...]
    at: float
    accepted: bool


class CatalogueRows:
    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    async def follow(self, load: Callable[[], Awaitable[None]]) -> None:
        """Run `load` now and after every change of the database."""
        await self._database.follow(load)

    async def lists(self, namespace: str, whose: str, origin: str) -> tuple[str, float] | None:
        """The lists as text and when they were good; None when there are none of that origin."""
        async with self._database.reading() as connection:
            rows = await connection.execute(_SELECT_LISTS, {"namespace": namespace, "whose": whose})
            row = rows.first()
        return (row[1], row[2]) if row is not None and row[0] == origin else None

    async def put_lists(self, namespace: str, whose: str, origin: str, lists: str, good_at: float) -> None:
        values = {"namespace": namespace, "whose": whose, "origin": origin, "lists": lists, "good_at": good_at}
        async with self._database.transaction() as connection:
            await connection.execute(_PUT_LISTS, values)

    async def put_pins(
        self, namespace: str, whose: str, pins: Mapping[str, tuple[str, Mapping[str, str]]], *, accept: bool
    ) -> dict[str, Mapping[str, str]]:
        """Note tool -> (digest, parts); the parts as they were of those whose digest was another.

        Unless `accept`, these are not pinned until somebody accepts them.
        """
        where = {"namespace": namespace, "whose": whose}
        async with self._database.reading() as connection:
            rows = await connection.execute(_SELECT_PINS, where)
            known: dict[str, tuple[str, str]] = {tool: (digest, parts) for tool, digest, parts in rows}
        news = {tool: each for tool, each in pins.items() if tool not in known or known[tool][0] != each[0]}
        if not news:
            return {}
        before: dict[str, Mapping[str, str]] = {}
        now = self._clock()
        async with self._database.transaction() as connection:
            for tool, (digest, parts) in news.items():
                values = {**where, "tool": tool, "digest": digest, "parts": json.dumps(dict(parts)), "now": now}
                if tool not in known:
                    await connection.execute(_ADD_PIN, values)
                    continue
                was: dict[str, str] = json.loads(known[tool][1])
                before[tool] = was
                changed = [part for part in {**was, **parts} if was.get(part) != parts.get(part)]
                accepted = now if accept else None
                await connection.execute(_CHANGE_PIN, {**values, "changed": json.dumps(changed), "accepted": accepted})
        return before

    async def unpinned(self) -> dict[Listed, frozenset[str]]:
        """The tools whose last change nobody has accepted, by backend and by whose lists they are in."""
        async with self._database.reading() as connection:
            found: dict[Listed, set[str]] = {}
            for namespace, whose, tool in await connection.execute(_SELECT_UNPINNED):
                found.setdefault((namespace, whose), set()).add(tool)
        return {listed: frozenset(tools) for listed, tools in found.items()}

    async def accept(self, namespace: str, tool: str | None) -> list[str]:
        """Pin a backend's tools, or the one named, as they are now; those that were not."""
        waiting = {name for (ns, _), tools in (await self.unpinned()).items() if ns == namespace for name in tools}
        chosen = sorted(waiting if tool is None else waiting & {tool})
        async with self._database.transaction() as connection:
            for name in chosen:
                await connection.execute(_ACCEPT, {"namespace": namespace, "tool": name, "now": self._clock()})
        return chosen

    async def changes(self, namespace: str, tenant: str) -> list[PinChange]:
        """Every tool of that backend, as this tenant or all are shown it, whose definition has ever changed.

        The latest first.
        """
        where = {"namespace": namespace, "tenant": f"tenant:{tenant}", "users": f"user:{tenant}/"}
        async with self._database.reading() as connection:
            rows = await connection.execute(_SELECT_CHANGES, where)
            latest: dict[str, PinChange] = {}
            for tool, parts, at, accepted_at in rows:
                latest.setdefault(tool, PinChange(tool, tuple(json.loads(parts)), at, accepted_at is not None))
        return list(latest.values())


_SELECT_LISTS = text(
    "SELECT origin, lists, good_at FROM catalogue_snapshots WHERE namespace = :namespace AND whose = :whose"
)
_PUT_LISTS = text(
    "INSERT INTO catalogue_snapshots (namespace, whose, origin, lists, good_at)"
    " VALUES (:namespace, :whose, :origin, :lists, :good_at)"
    " ON CONFLICT (namespace, whose) DO UPDATE"
    " SET origin = excluded.origin, lists = excluded.lists, good_at = excluded.good_at"
)
_SELECT_PINS = text("SELECT tool, digest, parts FROM catalogue_pins WHERE namespace = :namespace AND whose = :whose")
_ADD_PIN = text(
    "INSERT INTO catalogue_pins (namespace, whose, tool, digest, parts, first_seen)"
    " VALUES (:namespace, :whose, :tool, :digest, :parts, :now)"
    " ON CONFLICT (namespace, whose, tool) DO NOTHING"
)
_CHANGE_PIN = text(
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
