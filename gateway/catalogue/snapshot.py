"""What one backend lists, checked and compiled once."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from mcp.shared.inbound import x_mcp_header_map

from gateway.catalogue.flatten import flatten
from gateway.catalogue.names import collisions
from gateway.catalogue.schema import compile_check
from gateway.catalogue.text_safety import hidden_in, looks, order_in, strings
from gateway.catalogue.validation import take_prompts, take_resources, take_templates, take_tools
from gateway.contract import Backend, BackendLists, Json

Check = Callable[[Json], None]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A backend's lists as they were when taken, without what cannot be served."""

    backend: Backend
    offer: BackendLists
    quarantined: Mapping[str, str]
    """Name -> why it is not served."""
    checks: Mapping[str, Check]
    headers: Mapping[str, Json]
    """Input schemas of the tools that mirror arguments into headers."""
    flat: Mapping[str, Json]
    """Input schemas as clients see them whose models refuse a choice at the root."""
    suspicious: Mapping[str, str] = field(default_factory=dict[str, str])
    """Name -> words that sound like an order to the model; it is served all the same."""
    degraded: bool = False
    unpinned: frozenset[str] = frozenset()
    """Tools whose definition has changed, which nobody has accepted yet."""


def take(backend: Backend, offer: BackendLists) -> Snapshot:
    """Check every item by itself: one bad tool never breaks the list."""
    tools, bad_tools = take_tools(list(offer.tools), trusted=backend.trusted)
    prompts, bad_prompts = take_prompts(list(offer.prompts), trusted=backend.trusted)
    resources, bad_resources = take_resources(list(offer.resources), trusted=backend.trusted)
    templates, bad_templates = take_templates(list(offer.templates), trusted=backend.trusted)
    if not backend.trusted:
        tools, bad_tools = _apart(tools, bad_tools)
        prompts, bad_prompts = _apart(prompts, bad_prompts)
    instructions, bad_words = _instructions(offer.instructions)
    twice = collisions(backend.namespace, [tool["name"] for tool in tools])
    bad_tools |= dict.fromkeys(twice, "its prefixed name is another tool's own name")
    tools = [tool for tool in tools if tool["name"] not in twice]
    alike = collisions(backend.namespace, [prompt["name"] for prompt in prompts])
    bad_prompts |= dict.fromkeys(alike, "its prefixed name is another prompt's own name")
    prompts = [prompt for prompt in prompts if prompt["name"] not in alike]
    return Snapshot(
        backend=backend,
        offer=replace(
            offer,
            tools=tuple(tools),
            prompts=tuple(prompts),
            resources=tuple(resources),
            templates=tuple(templates),
            instructions=instructions,
        ),
        quarantined={**bad_words, **bad_templates, **bad_resources, **bad_prompts, **bad_tools},
        suspicious={} if backend.trusted else _suspicious([*tools, *prompts]),
        checks={tool["name"]: compile_check(tool["inputSchema"]) for tool in tools},
        flat={tool["name"]: flatten(tool["inputSchema"]) for tool in tools},
        headers={tool["name"]: tool["inputSchema"] for tool in tools if x_mcp_header_map(tool["inputSchema"])},
    )


def _apart(items: list[Json], bad: dict[str, str]) -> tuple[list[Json], dict[str, str]]:
    """Of names that a reader cannot tell apart only the first is served."""
    kept: list[Json] = []
    seen: dict[str, str] = {}
    for item in items:
        name = item["name"]
        if (other := seen.setdefault(looks(name), name)) == name:
            kept.append(item)
        else:
            bad = {**bad, name: f"its name cannot be told from {other!r}"}
    return kept, bad


def _instructions(words: str) -> tuple[str, dict[str, str]]:
    if (found := hidden_in(words)) is None:
        return words, {}
    return "", {"instructions": f"they hold the hidden character {found}"}


def _suspicious(items: list[Json]) -> dict[str, str]:
    said = ((item["name"], order_in(text)) for item in items for _, text in strings(item, "it"))
    return {name: words for name, words in said if words is not None}


def effect_of(backend: Backend, tool: Json) -> int:
    """0 to 3, as the operator or the module said; else by annotation, which a remote server may only raise."""
    if (stated := backend.manifest.effects.get(tool["name"])) is not None:
        return stated
    hints = cast("Mapping[str, Any]", tool.get("annotations") or {})
    if backend.trusted:
        if hints.get("readOnlyHint") is True:
            return 0
        return 1 if hints.get("idempotentHint") is True and hints.get("destructiveHint") is False else 2
    return 3 if hints.get("destructiveHint") is True else 2


def timeout_of(backend: Backend, tool: str, default: float) -> float:
    timeouts = backend.manifest.timeouts
    return timeouts.get(tool) or timeouts.get("*") or default
