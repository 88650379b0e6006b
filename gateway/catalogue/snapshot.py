"""Snapshots: the lists of one backend, validated and compiled once. Views are built from them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, Final, cast

from mcp.shared.inbound import x_mcp_header_map

from gateway.catalogue.effects import effect_of, unmatched_overrides
from gateway.catalogue.flatten import flatten
from gateway.catalogue.names import canonical, collisions
from gateway.catalogue.persistence import compute_pin, pin_digest
from gateway.catalogue.schema import compile_check
from gateway.catalogue.text_safety import find_hidden_character, find_model_instruction, iter_strings, skeleton
from gateway.catalogue.validation import validate_prompts, validate_resources, validate_templates, validate_tools
from gateway.contract import Backend, BackendLists, Json, TaskSupport

Check = Callable[[Json], None]
SUPPORTS_DRY_RUN: Final = "gox:supportsDryRun"
"""Key in a tool's `_meta`, of the Gox contract."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A backend's lists at one point in time, without the items that cannot be served."""

    backend: Backend
    lists: BackendLists
    quarantined: Mapping[str, str]
    """Reason by name, for items that are not served."""
    argument_checks: Mapping[str, Check]
    header_schemas: Mapping[str, Json]
    """Input schemas of tools that copy arguments into headers."""
    flat_schemas: Mapping[str, Json]
    """Flattened input schemas, for clients whose models reject a combinator at the root."""
    suspicious: Mapping[str, str] = field(default_factory=dict[str, str])
    """Text by name that reads like an instruction to the model. These items are served."""
    degraded: bool = False
    digests: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    """Digests of each tool's definitions, of remote servers only. Several if the processes of the server differ."""
    unpinned: frozenset[str] = frozenset()
    """Tools with a changed definition that is not accepted yet."""
    unmatched_effects: tuple[str, ...] = ()
    """Names and patterns under `effects` of the entry that match no tool."""


def take_snapshot(backend: Backend, lists: BackendLists) -> Snapshot:
    """Validate and compile a backend's lists. Each item is checked separately: a bad one does not affect the others."""
    tools, bad_tools = validate_tools(list(lists.tools), trusted=backend.trusted)
    prompts, bad_prompts = validate_prompts(list(lists.prompts), trusted=backend.trusted)
    resources, bad_resources = validate_resources(list(lists.resources), trusted=backend.trusted)
    templates, bad_templates = validate_templates(list(lists.templates), trusted=backend.trusted)
    if not backend.trusted:
        tools, bad_tools = _drop_lookalikes(tools, bad_tools)
        prompts, bad_prompts = _drop_lookalikes(prompts, bad_prompts)
    instructions, bad_instructions = _check_instructions(lists.instructions)
    tool_collisions = collisions(backend.namespace, [tool["name"] for tool in tools])
    bad_tools |= dict.fromkeys(tool_collisions, "its prefixed name is the name of another tool")
    tools = [tool for tool in tools if tool["name"] not in tool_collisions]
    prompt_collisions = collisions(backend.namespace, [prompt["name"] for prompt in prompts])
    bad_prompts |= dict.fromkeys(prompt_collisions, "its prefixed name is the name of another prompt")
    prompts = [prompt for prompt in prompts if prompt["name"] not in prompt_collisions]
    return Snapshot(
        backend=backend,
        lists=replace(
            lists,
            tools=tuple(tools),
            prompts=tuple(prompts),
            resources=tuple(resources),
            templates=tuple(templates),
            instructions=instructions,
        ),
        quarantined={**bad_instructions, **bad_templates, **bad_resources, **bad_prompts, **bad_tools},
        suspicious={} if backend.trusted else _find_suspicious([*tools, *prompts]),
        argument_checks={tool["name"]: compile_check(tool["inputSchema"]) for tool in tools},
        flat_schemas={tool["name"]: flatten(tool["inputSchema"]) for tool in tools},
        header_schemas={tool["name"]: tool["inputSchema"] for tool in tools if x_mcp_header_map(tool["inputSchema"])},
        unmatched_effects=tuple(unmatched_overrides(backend.manifest, (tool["name"] for tool in tools))),
        digests={} if backend.trusted else _digests(backend.namespace, tools, lists.variants),
    )


def _digests(namespace: str, tools: list[Json], variants: tuple[Json, ...]) -> dict[str, frozenset[str]]:
    digests: dict[str, set[str]] = {tool["name"]: set() for tool in tools}
    for each in (*tools, *variants):
        if (name := each["name"]) in digests:
            digests[name].add(pin_digest(namespace, name, compute_pin(each)))
    return {name: frozenset(each) for name, each in digests.items()}


def _drop_lookalikes(items: list[Json], bad: dict[str, str]) -> tuple[list[Json], dict[str, str]]:
    """Keep the first of several names that look the same; add the others to `bad`."""
    kept: list[Json] = []
    seen: dict[str, str] = {}
    for item in items:
        name = item["name"]
        if (other := seen.setdefault(skeleton(name), name)) == name:
            kept.append(item)
        else:
            bad = {**bad, name: f"its name looks the same as {other!r}"}
    return kept, bad


def _check_instructions(text: str) -> tuple[str, dict[str, str]]:
    if (found := find_hidden_character(text)) is None:
        return text, {}
    return "", {"instructions": f"they contain the hidden character {found}"}


def _find_suspicious(items: list[Json]) -> dict[str, str]:
    found = ((item["name"], find_model_instruction(text)) for item in items for _, text in iter_strings(item, "it"))
    return {name: text for name, text in found if text is not None}


def allows_dry_run(backend: Backend, tool: Json) -> bool:
    """Whether the tool reads, or declares a dry run in its manifest or, as Gox servers do, in its `_meta`."""
    if effect_of(backend, tool) == 0 or tool["name"] in backend.manifest.dry_run:
        return True
    meta = cast("Mapping[str, Any]", tool.get("_meta") or {})
    return meta.get(SUPPORTS_DRY_RUN) is True


def may_repeat(backend: Backend, tool: Json) -> bool:
    """Whether a call that is repeated with the same idempotency key may write a second time."""
    return effect_of(backend, tool) > 1 and tool["name"] not in backend.manifest.idempotency_keys


def has_upstream_tasks(lists: BackendLists, tool: Json) -> bool:
    """Whether the server runs calls of this tool as tasks of 2025-11-25."""
    tasks: Any = lists.capabilities.get("tasks")
    requests: Any = cast("Json", tasks).get("requests") if isinstance(tasks, dict) else None
    tools: Any = cast("Json", requests).get("tools") if isinstance(requests, dict) else None
    return isinstance(tools, dict) and "call" in tools and _declared_support(tool) != "forbidden"


def task_support(backend: Backend, tool: Json, patterns: Sequence[str]) -> TaskSupport:
    """Whether a call of the tool may become a task: as the tool, its module or the operator (`patterns`) says."""
    declared = _declared_support(tool)
    if declared != "forbidden":
        return declared
    name = tool["name"]
    allowed = any(fnmatchcase(name, each) for each in backend.manifest.tasks) or any(
        fnmatchcase(canonical(backend.namespace, name), each) for each in patterns
    )
    return "optional" if allowed else "forbidden"


def _declared_support(tool: Json) -> TaskSupport:
    execution: Any = tool.get("execution")
    support: Any = cast("Json", execution).get("taskSupport") if isinstance(execution, dict) else None
    return support if support in ("optional", "required") else "forbidden"


def timeout_of(backend: Backend, tool: str, default: float) -> float:
    timeouts = backend.manifest.timeouts
    return timeouts.get(tool) or timeouts.get("*") or default
