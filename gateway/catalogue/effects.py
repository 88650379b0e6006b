"""The effect of a tool, and whether its effect calls for approval.

The catalogue computes both once per tool. Policies, `gatehouse tools`, `gatehouse check` and the console show these
values, so that they agree.
"""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, cast

from gateway.contract import Backend, Json, Manifest

DESTRUCTIVE = 3
WRITES = 2


def find_override(overrides: Mapping[str, int], tool: str) -> int | None:
    """Return the effect that the entry states for a tool: by its name, else by the first pattern that matches."""
    if (stated := overrides.get(tool)) is not None:
        return stated
    return next((effect for pattern, effect in overrides.items() if fnmatchcase(tool, pattern)), None)


def effect_of(backend: Backend, tool: Json) -> int:
    """Effect from 0 to 3: as declared, else from annotations. Those of a remote server may only raise the effect."""
    manifest, name = backend.manifest, tool["name"]
    if (stated := find_override(manifest.effect_overrides, name)) is not None:
        return stated
    if (declared := manifest.effects.get(name)) is not None:
        return declared
    hints = cast("Mapping[str, Any]", tool.get("annotations") or {})
    if backend.trusted:
        if hints.get("readOnlyHint") is True:
            return 0
        return 1 if hints.get("idempotentHint") is True and hints.get("destructiveHint") is False else 2
    return DESTRUCTIVE if hints.get("destructiveHint") is True else WRITES


def needs_approval(backend: Backend, tool: Json) -> bool:
    """Whether the effect calls for approval: `resource.needs_approval` of policies.

    `trust` of the entry decides how far the annotations of a remote server count. An effect that the entry states
    itself always counts.
    """
    effect, manifest = effect_of(backend, tool), backend.manifest
    if backend.trusted or manifest.trust == "annotations":
        return effect >= DESTRUCTIVE
    if manifest.trust == "strict":
        return effect >= WRITES
    return effect >= DESTRUCTIVE and find_override(manifest.effect_overrides, tool["name"]) is not None


def unmatched_overrides(manifest: Manifest, tools: Iterable[str]) -> list[str]:
    """Return the names and patterns under `effects` that match none of the tools."""
    if not (names := list(tools)):
        return []  # not listed yet
    return [
        pattern
        for pattern in manifest.effect_overrides
        if pattern not in names and not any(fnmatchcase(name, pattern) for name in names)
    ]
