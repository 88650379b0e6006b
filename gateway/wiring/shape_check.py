"""Checks the rules of backends and virtual servers against the lists of the backends. `gatehouse check` uses it."""

from collections.abc import Iterator, Mapping, Sequence

from gateway.catalogue.list_format import ListFormat
from gateway.catalogue.names import Mode
from gateway.catalogue.shape import EndpointShape, IdPattern
from gateway.catalogue.snapshot import Snapshot
from gateway.catalogue.view import View
from gateway.settings import Settings
from gateway.settings.shape import ItemRuleSettings, ShapeSection, ToolRuleSettings
from gateway.wiring.shapes import backend_shapes, build_shape


def find_rule_warnings(settings: Settings, snapshots: Mapping[str, Snapshot]) -> Iterator[str]:
    """Yield a line for each rule that has no effect or cannot be applied. `snapshots` are the lists that are known."""
    shapes = backend_shapes(settings)
    for namespace, entry in settings.backends.items():
        if entry.enabled:
            at = f"backends.{namespace}"
            yield from _section_warnings(settings, at, entry, entry.tools, (namespace,), snapshots)
            yield from _view_warnings(at, (namespace,), snapshots, EndpointShape(backends=shapes))
    for name, server in settings.servers.items():
        rules = server.tools.rules
        yield from _section_warnings(settings, f"servers.{name}", server, rules, server.backends, snapshots)
        shape = EndpointShape(backends=shapes, server=build_shape(server, rules))
        inner = EndpointShape(backends=shapes)
        of_backends = set(_view_warnings(f"servers.{name}", server.backends, snapshots, inner, server.names))
        found = _view_warnings(f"servers.{name}", server.backends, snapshots, shape, server.names)
        yield from (line for line in found if line not in of_backends)


def _section_warnings(
    settings: Settings,
    at: str,
    section: ShapeSection,
    tools: Sequence[ToolRuleSettings],
    namespaces: Sequence[str],
    snapshots: Mapping[str, Snapshot],
) -> Iterator[str]:
    for tenant in section.tenants or ():
        if tenant not in settings.tenants:
            yield f"{at}.tenants: {tenant} is not a tenant of the settings"
    known = [snapshots[namespace] for namespace in namespaces if namespace in snapshots]
    unread = [namespace for namespace in namespaces if namespace not in snapshots and _is_served(settings, namespace)]
    view = View(known, "underscore", ListFormat(), _always, _always)
    ids = {
        "tools": {route.canonical for route in view.tools.values()},
        "prompts": {route.canonical for route in view.prompts.values()},
        "resources": {route.canonical for each in (view.resources, view.templates) for route in each.values()},
    }
    groups: tuple[tuple[str, Sequence[ItemRuleSettings], str], ...] = (
        ("tools", tools, "."),
        ("prompts", section.prompts, "."),
        ("resources", section.resources, ":"),
    )
    for kind, rules, separator in groups:
        earlier: list[IdPattern] = []
        for position, rule in enumerate(rules):
            pattern = IdPattern(rule.pattern)
            place = f"{at}.{kind}.{position}"
            if (covering := next((each for each in earlier if each.covers(pattern)), None)) is not None:
                yield f"{place}: {rule.pattern} has no effect, because {covering.text} comes before it"
            elif not any(map(pattern.matches, ids[kind])):
                waiting = [each for each in unread if _may_match(rule.pattern, each, separator)]
                if waiting:
                    yield (
                        f"{place}: {rule.pattern} cannot be checked, because the lists of {', '.join(waiting)} cannot"
                        " be read; see `gatehouse backends check`"
                    )
                elif kind != "resources" or not _may_match_any(rule.pattern, namespaces, separator):
                    # A server may know resources that it does not list.
                    yield f"{place}: {rule.pattern} matches nothing"
            earlier.append(pattern)


def _view_warnings(
    at: str,
    namespaces: Sequence[str],
    snapshots: Mapping[str, Snapshot],
    shape: EndpointShape,
    mode: Mode = "underscore",
) -> Iterator[str]:
    known = [snapshots[namespace] for namespace in namespaces if namespace in snapshots]
    for problem in View(known, mode, ListFormat(), _always, _always, shape).problems:
        yield f"{at}.tools: {problem}"


def _is_served(settings: Settings, namespace: str) -> bool:
    return namespace in settings.backends and settings.backends[namespace].enabled


def _may_match(pattern: str, namespace: str, separator: str) -> bool:
    """Whether some id of this namespace could match the pattern."""
    literal, star, _ = pattern.partition("*")
    prefix = f"{namespace}{separator}"
    return literal.startswith(prefix) or (bool(star) and prefix.startswith(literal))


def _may_match_any(pattern: str, namespaces: Sequence[str], separator: str) -> bool:
    return any(_may_match(pattern, namespace, separator) for namespace in namespaces)


def _always(route: object) -> bool:
    return True
