"""Keys that shape a backend or a virtual server: `tools`, `prompts`, `resources`, `instructions`, `tenants`."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, cast

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from gateway.catalogue.names import GATEWAY_TOOLS
from gateway.catalogue.text_safety import find_hidden_character
from gateway.settings.base import Section
from gateway.settings.values import Count, Problem, SettingPath, TenantName, Tree, problems

MAX_TEXT: Final = 16 * 1024
_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")


def _check_text(text: str) -> str:
    if len(text.encode()) > MAX_TEXT:
        raise ValueError(f"is over {MAX_TEXT} bytes")
    if (found := find_hidden_character(text)) is not None:
        raise ValueError(f"contains the hidden character {found}")
    return text


def _check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError("expected letters, digits, _ and -")
    if name in GATEWAY_TOOLS:
        raise ValueError(f"{name} is a tool of the gateway itself")
    return name


ShownText = Annotated[str, AfterValidator(_check_text)]
ShownName = Annotated[str, AfterValidator(_check_name)]
Pattern = Annotated[str, Field(min_length=1, max_length=512)]


class ItemRuleSettings(Section):
    """A rule for resources: allows or denies the items that its pattern matches."""

    allow: Pattern | None = Field(default=None, description="Pattern of the ids to serve; * matches any text.")
    deny: Pattern | None = Field(default=None, description="Pattern of the ids not to serve.")
    title: ShownText | None = Field(default=None, description="Title to show instead; needs an id without *.")
    description: ShownText | None = Field(
        default=None, description="Description to show instead; needs an id without *."
    )

    @property
    def pattern(self) -> str:
        return self.deny if self.allow is None else self.allow  # type: ignore[return-value]

    @model_validator(mode="after")
    def _check_keys(self) -> "ItemRuleSettings":
        if (self.allow is None) == (self.deny is None):
            raise problems(((), "give either allow or deny"))
        others = [key for key in type(self).model_fields if key in self.model_fields_set and key not in _PATTERNS]
        if self.deny is not None and others:
            raise problems(((others[0],), "has no effect on items that are denied; remove it or use allow"))
        if "*" in self.pattern and (texts := [key for key in others if key in _ONE_ITEM]):
            raise problems(((texts[0],), "applies to one item; write its whole id in allow"))
        return self


_PATTERNS: Final = frozenset({"allow", "deny"})
_ONE_ITEM: Final = frozenset({"name", "title", "description"})


class PromptRuleSettings(ItemRuleSettings):
    """A rule for prompts."""

    name: ShownName | None = Field(default=None, description="Name to show instead; needs an id without *.")


class ToolRuleSettings(PromptRuleSettings):
    """A rule for tools."""

    set: Tree = Field(
        default={}, description="Arguments that the gateway adds to every call; they leave the schema of the tool."
    )
    hide: tuple[str, ...] = Field(
        default=(), description="Arguments that leave the schema; a required one needs a value in set."
    )


class ToolListSettings(Section):
    """The tools of a virtual server. May be written as its `rules` alone, or as its `view` alone."""

    view: Literal["list", "search", "auto"] = Field(
        default="list",
        description="Whether clients get the whole list, three tools to search it (search), or the list up to a size "
        "and search above it (auto).",
    )
    rules: tuple[ToolRuleSettings, ...] = Field(
        default=(), description="Rules for the tools; the first that matches decides."
    )
    budget: Count = Field(default=8000, description="Estimated tokens up to which `auto` sends the whole list.")


def _expand(value: Any) -> Any:
    """`tools: search` is short for its view, a list for its rules."""
    if isinstance(value, str):
        return {"view": value}
    return {"rules": cast("list[Any]", value)} if isinstance(value, list | tuple) else value


class ShapeSection(Section):
    """The keys that backends and virtual servers share. A subclass adds `tools`."""

    prompts: tuple[PromptRuleSettings, ...] = Field(
        default=(), description="Rules for its prompts, by canonical id; the first that matches decides."
    )
    resources: tuple[ItemRuleSettings, ...] = Field(
        default=(),
        description="Rules for its resources and templates, by NAMESPACE:URI; the first that matches decides.",
    )
    instructions: ShownText | None = Field(
        default=None, description="Instructions for the model; by default those of the backends."
    )
    tenants: tuple[TenantName, ...] | None = Field(
        default=None, description="Tenants that may use it; by default all that policies and tenants allow."
    )


ToolList = Annotated[ToolListSettings, BeforeValidator(_expand)]


def rule_problems(
    path: SettingPath, tools: Sequence[ToolRuleSettings], prompts: Sequence[PromptRuleSettings], max_name: int
) -> Iterator[Problem]:
    """The mistakes in the names of a section's rules."""
    groups: Mapping[str, Sequence[PromptRuleSettings]] = {"tools": tools, "prompts": prompts}
    for kind, rules in groups.items():
        names: dict[str, str] = {}
        for position, rule in enumerate(rules):
            if rule.name is None:
                continue
            if len(rule.name) > max_name:
                yield (*path, kind, position, "name"), f"is over {max_name} characters (names.max_length)"
            if names.setdefault(rule.name, rule.pattern) != rule.pattern:
                yield (*path, kind, position, "name"), f"{names[rule.name]} has the name {rule.name} as well"
