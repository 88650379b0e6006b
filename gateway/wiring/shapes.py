"""Converts the shaping keys of backends and virtual servers to the shapes that the catalogue applies."""

from collections.abc import Iterable
from typing import Final

from gateway.catalogue.shape import IdPattern, ItemRule, ItemRules, Shape
from gateway.settings import BackendEntry, Settings
from gateway.settings.shape import ItemRuleSettings, PromptRuleSettings, ShapeSection, ToolRuleSettings

_KEYS: Final = ("tools", *ShapeSection.model_fields)


def has_rules(settings: Settings) -> bool:
    """Whether any backend or virtual server is shaped."""
    sections = ((each, each.tools) for each in settings.backends.values())
    servers = ((each, each.tools.rules) for each in settings.servers.values())
    return any(tools or each.prompts or each.resources or each.tenants for each, tools in (*sections, *servers))


def build_shape(section: ShapeSection, tools: Iterable[ToolRuleSettings]) -> Shape:
    return Shape(
        tools=_rules(tools),
        prompts=_rules(section.prompts),
        resources=_rules(section.resources),
        instructions=section.instructions,
        tenants=None if section.tenants is None else frozenset(section.tenants),
    )


def backend_shapes(settings: Settings) -> dict[str, Shape]:
    """The shapes of all backends, by namespace."""
    return {namespace: build_shape(entry, entry.tools) for namespace, entry in settings.backends.items()}


def without_shape(entry: BackendEntry) -> BackendEntry:
    """The entry without its shaping keys."""
    return entry.model_copy(update={key: type(entry).model_fields[key].default for key in _KEYS})


def _rules(rules: Iterable[ItemRuleSettings]) -> ItemRules:
    return ItemRules(tuple(_rule(each) for each in rules))


def _rule(rule: ItemRuleSettings) -> ItemRule:
    is_tool = isinstance(rule, ToolRuleSettings)
    return ItemRule(
        pattern=IdPattern(rule.pattern),
        deny=rule.deny is not None,
        name=rule.name if isinstance(rule, PromptRuleSettings) else None,
        title=rule.title,
        description=rule.description,
        fixed=rule.set if is_tool else {},
        hidden=frozenset(rule.hide) if is_tool else frozenset(),
    )
