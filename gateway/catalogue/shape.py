"""Shapes: the rules with which an operator selects, renames and presets the items of a backend or a virtual server.

The settings define them; views apply them. A shape changes what clients see and send. The canonical id and the
backend's own definition stay what policies, audit, pins and traces refer to.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from gateway.catalogue.flatten import REMOVED, as_dict, as_list, flatten
from gateway.catalogue.schema import InvalidSchema, compile_check
from gateway.contract import Json, RouteShape
from gateway.errors import Fault

ItemKind = Literal["tools", "prompts", "resources"]


@dataclass(frozen=True, slots=True)
class IdPattern:
    """A pattern over canonical ids in which `*` matches any text. Matching takes linear time."""

    text: str
    _parts: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_parts", tuple(self.text.split("*")))

    @property
    def is_exact(self) -> bool:
        return len(self._parts) == 1

    def matches(self, id: str) -> bool:
        if len(self._parts) == 1:
            return id == self.text
        first, *middle, last = self._parts
        position, end = len(first), len(id) - len(last)
        if position > end or not id.startswith(first) or not id.endswith(last):
            return False
        for part in middle:
            position = id.find(part, position, end)
            if position < 0:
                return False
            position += len(part)
        return True

    def covers(self, other: "IdPattern") -> bool:
        """Whether this pattern matches everything that the other one matches."""
        # The literal parts contain no `*`, so a `*` of the other pattern is matched by a `*` of this one.
        return self.matches(other.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemRule:
    """One rule: it allows or denies the items that its pattern matches, and may present an allowed one differently."""

    pattern: IdPattern
    deny: bool = False
    name: str | None = None
    title: str | None = None
    description: str | None = None
    fixed: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Arguments that the gateway adds to every call."""
    hidden: frozenset[str] = frozenset()
    """Arguments that leave the schema."""


@dataclass(frozen=True, slots=True)
class ItemRules:
    """An ordered list of rules; the first that matches decides. Without an `allow` rule, items match implicitly."""

    rules: tuple[ItemRule, ...] = ()

    def find(self, id: str) -> ItemRule | None:
        """The rule that serves this item; None if it is not served."""
        for rule in self.rules:
            if rule.pattern.matches(id):
                return None if rule.deny else rule
        return None if any(not rule.deny for rule in self.rules) else UNCHANGED


UNCHANGED: Final = ItemRule(pattern=IdPattern("*"))
NO_RULES: Final = ItemRules()


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How an operator shapes a backend, for every endpoint, or a virtual server."""

    tools: ItemRules = NO_RULES
    prompts: ItemRules = NO_RULES
    resources: ItemRules = NO_RULES
    instructions: str | None = None
    """Replaces the instructions of the backends."""
    tenants: frozenset[str] | None = None
    """Tenants that may use it; None for all."""

    @property
    def selects_items(self) -> bool:
        return bool(self.tools.rules or self.prompts.rules or self.resources.rules)

    def admits(self, tenant: str) -> bool:
        return self.tenants is None or tenant in self.tenants


PLAIN: Final = Shape()


@dataclass(frozen=True, slots=True)
class ItemPresentation:
    """What the rules of a backend and of a virtual server together change about one item."""

    own_name: str | None = None
    """New name of the item within its backend: naming modes still add the namespace."""
    exposed_name: str | None = None
    """Name on this endpoint, exactly as written."""
    title: str | None = None
    description: str | None = None
    fixed: Mapping[str, Any] = field(default_factory=dict[str, Any])
    hidden: frozenset[str] = frozenset()

    def show(self, definition: Json) -> Json:
        """The definition with the operator's title and description."""
        texts = {"title": self.title, "description": self.description}
        return {**definition, **{key: text for key, text in texts.items() if text is not None}}


NOT_CHANGED: Final = ItemPresentation()


def present(backend: ItemRules, server: ItemRules, id: str) -> ItemPresentation | None:
    """Combine the rules of a backend with those of a virtual server; None if either does not serve the item.

    Texts of the server win. A value that the backend's rules set cannot be changed by the server's.
    """
    inner = backend.find(id) if backend.rules else UNCHANGED
    outer = server.find(id) if server.rules else UNCHANGED
    if inner is None or outer is None:
        return None
    if inner is UNCHANGED and outer is UNCHANGED:
        return NOT_CHANGED
    return ItemPresentation(
        own_name=inner.name,
        exposed_name=outer.name,
        title=inner.title if outer.title is None else outer.title,
        description=inner.description if outer.description is None else outer.description,
        fixed={**outer.fixed, **inner.fixed},
        hidden=inner.hidden | outer.hidden,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointShape:
    """The shapes that apply to the views of one endpoint."""

    backends: Mapping[str, Shape] = field(default_factory=dict[str, Shape])
    """By namespace."""
    server: Shape = PLAIN
    path: str = "/mcp"

    @property
    def confined_to(self) -> str | None:
        """The endpoint to which calls made on behalf of a call are confined: a server that selects its items."""
        return self.path if self.server.selects_items else None

    def present(self, kind: ItemKind, namespace: str, id: str) -> ItemPresentation | None:
        """What the rules change about an item; None if they exclude it."""
        backend = self.backends.get(namespace, PLAIN)
        match kind:
            case "tools":
                return present(backend.tools, self.server.tools, id)
            case "prompts":
                return present(backend.prompts, self.server.prompts, id)
            case "resources":
                return present(backend.resources, self.server.resources, id)

    def namespace_of_name(self, name: str) -> str | None:
        """The backend whose tool or prompt a rule of the server gives this name; None if no rule does."""
        rules = (*self.server.tools.rules, *self.server.prompts.rules)
        return next((rule.pattern.text.partition(".")[0] for rule in rules if rule.name == name), None)

    def instructions_of(self, namespace: str, own: str) -> str:
        """The instructions of a backend, as its operator wrote them or else its own."""
        written = self.backends.get(namespace, PLAIN).instructions
        return own if written is None else written


class InvalidShape(ValueError):
    """Arguments that cannot be set or hidden; the message is the reason."""


def shape_arguments(schema: Json, fixed: Mapping[str, Any], hidden: Iterable[str]) -> tuple[Json, RouteShape]:
    """The input schema without the withheld arguments, and the arguments to add to calls. Raises `InvalidShape`.

    The listed schema is the flattened one: its root has no combinator that could name a withheld argument.
    """
    flat = flatten(schema)
    if REMOVED & flat.keys():
        raise InvalidShape("its input schema is too complex to set or hide arguments")
    properties, required = as_dict(flat.get("properties")), as_list(flat.get("required"))
    for name, value in fixed.items():
        if name not in properties:
            raise InvalidShape(f"set: it has no argument {name!r}")
        _check_value(flat, name, value)
    known = [name for name in hidden if name in properties]
    if missing := sorted(name for name in known if name in required and name not in fixed):
        raise InvalidShape(f"hide: {missing[0]!r} is required; give its value in set")
    withheld = frozenset((*fixed, *hidden))
    shown: Json = {**flat, "properties": {key: value for key, value in properties.items() if key not in withheld}}
    if kept := [name for name in required if name not in withheld]:
        shown["required"] = kept
    else:
        shown.pop("required", None)
    return shown, RouteShape(dict(fixed), withheld)


def _check_value(flat: Json, name: str, value: Any) -> None:
    """Check one argument alone: the others of the schema are the caller's."""
    alone = {key: rule for key, rule in flat.items() if key not in _ABOUT_OTHERS}
    try:
        compile_check(alone)({name: value})
    except Fault as fault:
        raise InvalidShape(f"set: {name!r} has an invalid value: {fault.message}") from fault
    except InvalidSchema as exc:
        raise InvalidShape(f"set: {name!r} cannot be checked: {exc}") from exc


_ABOUT_OTHERS: Final = frozenset({"required", "dependentRequired", "minProperties"})
