"""Effects of tools, for `gatehouse check`: which tools each name and pattern under `effects` matches.

The tools of a backend are known only to the backend, so those with `effects` are connected to or loaded.
"""

import asyncio
import io
import logging
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from gateway.catalogue.effects import effect_of, find_override, needs_approval, unmatched_overrides
from gateway.cli.backend_check import INFO, MAX_BYTES, connect_timeout
from gateway.contract import Backend, Json, Manifest
from gateway.errors import Fault, ForeignError
from gateway.settings import BackendEntry, ModuleBackend, Settings
from gateway.telemetry.log import LogLines
from gateway.upstream.health import LoadError
from gateway.upstream.module_loader import apply_overrides
from gateway.upstream.stdio.orphan_reaper import OrphanReaper
from gateway.wiring.backends import OVERRIDES, remote_backend

_MODULE_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class ToolEffect:
    """One tool of a backend with `effects`."""

    tool: str
    effect: int
    needs_approval: bool
    stated: bool
    """Whether `effects` states it; otherwise it comes from the module or from annotations."""


@dataclass(frozen=True, slots=True)
class EffectFinding:
    """Effects of the tools of one backend, the entries under `effects` that match nothing, or why it is unknown."""

    namespace: str
    tools: tuple[ToolEffect, ...] = ()
    unmatched: tuple[str, ...] = ()
    problem: str = ""

    def errors(self) -> list[tuple[tuple[str, ...], str]]:
        """Position and text of an error for each entry that matches no tool."""
        names = [each.tool for each in self.tools]
        found: list[tuple[tuple[str, ...], str]] = []
        for pattern in self.unmatched:
            close = get_close_matches(pattern, names, 1)
            hint = f"; did you mean {close[0]}?" if close else f" (known: {', '.join(names)})"
            at = ("backends", self.namespace, "effects", pattern)
            found.append((at, f"{'.'.join(at)}: no tool of this backend matches it{hint}"))
        return found

    def to_json(self) -> Json:
        return {
            "tools": {each.tool: {"effect": each.effect, "needs_approval": each.needs_approval} for each in self.tools},
            "unmatched": list(self.unmatched),
            "problem": self.problem,
        }


def find_effects(settings: Settings) -> list[EffectFinding]:
    """Read the tools of every enabled backend with `effects`."""
    chosen = {ns: entry for ns, entry in settings.backends.items() if entry.enabled and entry.effects}
    if not chosen:
        return []
    logging.disable()  # the findings say it all; a module's gateway would log to standard error
    try:
        return asyncio.run(_find_all(settings, chosen))
    finally:
        logging.disable(logging.NOTSET)


async def _find_all(settings: Settings, chosen: dict[str, BackendEntry]) -> list[EffectFinding]:
    reaper = OrphanReaper()
    try:
        work = (_find_one(settings, namespace, entry, reaper) for namespace, entry in chosen.items())
        return list(await asyncio.gather(*work))
    finally:
        reaper.close()


async def _find_one(settings: Settings, namespace: str, entry: BackendEntry, reaper: OrphanReaper) -> EffectFinding:
    seconds = _MODULE_SECONDS if isinstance(entry, ModuleBackend) else connect_timeout(entry)
    try:
        async with asyncio.timeout(seconds):
            if isinstance(entry, ModuleBackend):
                return await _find_in_module(settings, namespace, entry)
            manifest = apply_overrides(Manifest(), entry.model_dump(include=OVERRIDES))
            backend = remote_backend(namespace, entry, manifest, info=INFO, max_bytes=MAX_BYTES, orphan_reaper=reaper)
            try:
                return _finding(backend, (await backend.fetch_lists(None)).tools)
            finally:
                await backend.close()
    except (Fault, ForeignError, LoadError, TimeoutError) as exc:
        return EffectFinding(namespace, problem=str(exc) or f"no response within {seconds:g} s")


async def _find_in_module(settings: Settings, namespace: str, entry: ModuleBackend) -> EffectFinding:
    """Load the module in a gateway of its own, with an empty data folder."""
    # Imported late: `check` needs the composition root only for modules with `effects`.
    from gateway.app import Gateway

    with tempfile.TemporaryDirectory(prefix="gatehouse-check-") as folder:
        changes = {
            "backends": {namespace: entry},
            "servers": {},
            "data_dir": Path(folder),
            "files_dir": Path(folder, "files"),
        }
        defaults = Settings()
        alone = settings.model_copy(
            update={**changes, "database": defaults.database, "bus": defaults.bus, "telemetry": defaults.telemetry}
        )
        gateway = await Gateway.open(alone, LogLines(io.StringIO()))
        try:
            snapshot = gateway.catalogue.snapshots[namespace]
            return _finding(snapshot.backend, snapshot.lists.tools)
        finally:
            await gateway.close()


def _finding(backend: Backend, tools: Sequence[Json]) -> EffectFinding:
    overrides = backend.manifest.effect_overrides
    found = tuple(
        ToolEffect(
            tool["name"],
            effect_of(backend, tool),
            needs_approval(backend, tool),
            find_override(overrides, tool["name"]) is not None,
        )
        for tool in tools
    )
    unmatched = unmatched_overrides(backend.manifest, (each.tool for each in found))
    return EffectFinding(backend.namespace, found, tuple(unmatched))
