"""The active policies, loaded from a folder and reloaded after every edit.

A reload replaces all policies at once. After an invalid edit, the last valid version stays active.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gateway.policy.ruleset import Ruleset, compile_ruleset
from gateway.policy.source import FolderStamp, InvalidPolicies, PolicySource, folder_stamp, read_folder

log = logging.getLogger("gatehouse.policy")

POLL_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class LoadedPolicies:
    """One version of all policies."""

    version: str
    default: Ruleset
    tenants: Mapping[str, Ruleset]

    def for_tenant(self, tenant: str) -> Ruleset:
        """Return the policies of a tenant; the default policies if it has none of its own."""
        return self.tenants.get(tenant, self.default)


def load(folder: Path) -> LoadedPolicies:
    """Read, parse and validate a folder. Raises `InvalidPolicies` with the problems of all tenants."""
    return compile_policies(read_folder(folder))


def compile_policies(source: PolicySource) -> LoadedPolicies:
    policy_sets = {None: source.default, **source.tenants}
    rulesets: dict[str | None, Ruleset] = {}
    problems: list[str] = []
    for tenant, policy_set in policy_sets.items():
        try:
            rulesets[tenant] = compile_ruleset(source.schema, source.org, policy_set, tenant)
        except InvalidPolicies as exc:
            problems += [line for line in exc.lines if line not in problems]
    if problems:
        raise InvalidPolicies(*problems)
    tenants = {tenant: ruleset for tenant, ruleset in rulesets.items() if tenant is not None}
    return LoadedPolicies(source.version, rulesets[None], tenants)


class ActivePolicies:
    """The active policies of the gateway. Create it with `ActivePolicies.open` and run `watch` in the background."""

    def __init__(self, folder: Path, loaded: LoadedPolicies, stamp: FolderStamp) -> None:
        self._folder = folder
        self._stamp = stamp
        self._listeners: list[Callable[[], None]] = []
        self.current = loaded
        """The active version. Every change replaces the object."""
        self.problems: tuple[str, ...] = ()
        """Why the current content of the folder is not active; empty if it is."""

    @classmethod
    async def open(cls, folder: Path) -> "ActivePolicies":
        """Load the policies. Raises `InvalidPolicies`, so that the gateway does not start with invalid policies."""
        stamp = await asyncio.to_thread(folder_stamp, folder)
        return cls(folder, await asyncio.to_thread(load, folder), stamp)

    def on_change(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    async def watch(self) -> None:
        """Poll the folder twice a second. Polling works on every file system, including a mounted ConfigMap."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            try:
                await self.refresh()
            except Exception:  # the task must survive any failure
                log.exception("policies: checking the folder failed; retrying")

    async def refresh(self) -> None:
        """Reload the policies if the folder has changed since the last check."""
        stamp = await asyncio.to_thread(folder_stamp, self._folder)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            loaded = await asyncio.to_thread(load, self._folder)
        except InvalidPolicies as exc:
            self.problems = exc.lines
            for line in exc.lines[:20]:
                log.error("policies: edit rejected; version %s stays active: %s", self.current.version, line)
            return
        self.problems = ()
        if loaded.version == self.current.version:
            return
        self.current = loaded
        log.info("policies: version %s is active", loaded.version)
        for listener in self._listeners:
            listener()
