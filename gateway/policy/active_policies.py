"""The policies in use: read from a folder, swapped whole after an edit, the last good ones kept after a bad one."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gateway.policy.ruleset import Ruleset, compile_ruleset
from gateway.policy.source import InvalidPolicies, PolicySource, Stamp, read, stamp

log = logging.getLogger("gatehouse.policy")

LOOK_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class LoadedPolicies:
    """One version of all policies."""

    version: str
    default: Ruleset
    tenants: Mapping[str, Ruleset]

    def of(self, tenant: str) -> Ruleset:
        """A tenant's own policies, or those of everybody who has none."""
        return self.tenants.get(tenant, self.default)


def load(folder: Path) -> LoadedPolicies:
    """Read, parse and validate a folder. Raises `BadPolicies`, with every tenant's mistakes."""
    return compiled(read(folder))


def compiled(source: PolicySource) -> LoadedPolicies:
    rooms = {None: source.default, **source.tenants}
    rulesets: dict[str | None, Ruleset] = {}
    problems: list[str] = []
    for tenant, room in rooms.items():
        try:
            rulesets[tenant] = compile_ruleset(source.schema, source.org, room, tenant)
        except InvalidPolicies as exc:
            problems += [line for line in exc.lines if line not in problems]
    if problems:
        raise InvalidPolicies(*problems)
    own = {tenant: each for tenant, each in rulesets.items() if tenant is not None}
    return LoadedPolicies(source.version, rulesets[None], own)


class ActivePolicies:
    """Open it with `Policies.open`; run `watch` beside the house."""

    def __init__(self, folder: Path, loaded: LoadedPolicies, seen: Stamp) -> None:
        self._folder = folder
        self._seen = seen
        self._listeners: list[Callable[[], None]] = []
        self.now = loaded
        """What decides. Another object after every change."""
        self.trouble: tuple[str, ...] = ()
        """Why the folder as it is now is not used; empty when it is."""

    @classmethod
    async def open(cls, folder: Path) -> "ActivePolicies":
        """Raises `BadPolicies`: nothing is served under policies that cannot be read."""
        seen = await asyncio.to_thread(stamp, folder)
        return cls(folder, await asyncio.to_thread(load, folder), seen)

    def on_change(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    async def watch(self) -> None:
        """Look at the folder twice a second: works on any file system, a mounted ConfigMap included."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self.refresh()
            except Exception:  # whatever one look met, the next one must come
                log.exception("the policies could not be looked at")

    async def refresh(self) -> None:
        """Take in an edit, if there was one since the last look."""
        seen = await asyncio.to_thread(stamp, self._folder)
        if seen == self._seen:
            return
        self._seen = seen
        try:
            loaded = await asyncio.to_thread(load, self._folder)
        except InvalidPolicies as exc:
            self.trouble = exc.lines
            for line in exc.lines[:20]:
                log.error("the new policies are not used, version %s stays: %s", self.now.version, line)
            return
        self.trouble = ()
        if loaded.version == self.now.version:
            return
        self.now = loaded
        log.info("policies %s are in use", loaded.version)
        for listener in self._listeners:
            listener()
