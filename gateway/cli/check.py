"""`gatehouse check`: validates the settings and shows what they serve, without starting the gateway."""

import asyncio
import json
import logging
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from gateway.cli.failure import BAD_SETTINGS, CommandError, print_stderr
from gateway.cli.load_settings import WILDCARD_HOSTS, add_module_paths, read_settings
from gateway.cli.output import open_output
from gateway.settings import BackendEntry, CommandBackend, ModuleBackend, OpenApiBackend, Settings, UrlBackend
from gateway.upstream.health import LoadError
from gateway.wiring.policy import check_policies

if TYPE_CHECKING:
    from gateway.cli.effects_check import EffectFinding


@dataclass(frozen=True, slots=True)
class ConfiguredBackend:
    """One entry of `backends:` as the operator wrote it, for `check` and `backends list`."""

    namespace: str
    kind: str
    target: str
    served: bool
    trust: str = ""
    """`trust` of a remote server; empty for a module, whose effects its manifest declares."""


def describe_entry(namespace: str, backend: BackendEntry) -> ConfiguredBackend:
    """Summarise one entry; `served` reflects the settings only."""
    match backend:
        case ModuleBackend():
            return ConfiguredBackend(namespace, "module", ":".join(backend.target), backend.enabled)
        case UrlBackend():
            return ConfiguredBackend(namespace, "url", backend.url, backend.enabled, backend.trust)
        case OpenApiBackend():
            return ConfiguredBackend(namespace, "openapi", backend.url, backend.enabled, backend.trust)
        case CommandBackend():
            # Arguments may hold secrets; the program's name does not.
            return ConfiguredBackend(namespace, "command", backend.command, backend.enabled, backend.trust)


def check(config: Path | None, as_json: bool) -> None:
    settings = read_settings(config)
    add_module_paths(settings)
    load_errors = list(_load_errors(settings))
    invalid = {error.setting_path[1] for error in load_errors if error.setting_path[0] == "backends"}
    described = [describe_entry(namespace, backend) for namespace, backend in settings.backends.items()]
    entries = [replace(entry, served=entry.served and entry.namespace not in invalid) for entry in described]
    effects = [] if load_errors else _effects(settings)
    warnings = [*find_warnings(settings), *_effect_warnings(settings, effects), *_rule_warnings(settings)]
    errors = [settings.with_origin(error.setting_path, str(error)) for error in load_errors]
    errors += [settings.with_origin(at, text) for finding in effects for at, text in finding.errors()]
    if as_json:
        print(json.dumps(_as_object(settings, entries, effects, warnings, errors), indent=2))
    else:
        _show(settings, entries)
        _show_effects(effects)
        for warning in warnings:
            print_stderr(f"warning: {warning}")
    if errors:
        raise CommandError(*errors, code=BAD_SETTINGS)


def _load_errors(settings: Settings) -> Iterator[LoadError]:
    """The errors that would stop `gatehouse serve`."""
    if settings.backends:
        from gateway.wiring.backends import find_load_errors

        yield from find_load_errors(settings)
    try:
        check_policies(settings)
    except LoadError as exc:
        yield exc


def _effects(settings: Settings) -> "list[EffectFinding]":
    if not any(entry.effects for entry in settings.backends.values()):
        return []
    from gateway.cli.effects_check import find_effects

    return find_effects(settings)


def _effect_warnings(settings: Settings, effects: "list[EffectFinding]") -> Iterator[str]:
    for finding in effects:
        if finding.problem:
            yield f"backends.{finding.namespace}.effects: not checked, its tools cannot be read: {finding.problem}"
    trusts = [ns for ns, each in settings.backends.items() if getattr(each, "trust", "annotations") != "annotations"]
    if trusts and settings.policies.dir is not None and not _policies_read_trust(settings.policies.dir):
        yield (
            f"backends.{trusts[0]}.trust: has no effect: the policies in {settings.policies.dir} do not read "
            "resource.needs_approval; see docs/policy.md"
        )


def _policies_read_trust(folder: Path) -> bool:
    return any("needs_approval" in path.read_text("utf-8") for path in folder.glob("**/*.cedar"))


def find_warnings(settings: Settings) -> Iterator[str]:
    """Yield a line for each entry that has no effect or refers to something unknown."""
    if not settings.backends:
        yield "backends: no backend is configured"
    if settings.server.host in WILDCARD_HOSTS and "public_url" not in settings.server.model_fields_set:
        yield f"server.public_url: not set, and clients cannot reach {settings.server.public_url}"
    for name, server in settings.servers.items():
        for namespace in server.backends:
            if not settings.backends[namespace].enabled:
                yield f"servers.{name}: {namespace} is not enabled"
    for name, tenant in settings.tenants.items():
        for namespace in tenant.backends:
            if namespace != "*" and namespace not in settings.backends:
                yield f"tenants.{name}: there is no backend {namespace}"


def _rule_warnings(settings: Settings) -> list[str]:
    """The rules that have no effect or cannot be applied. Modules are loaded only if there are rules to check."""
    from gateway.wiring.shapes import has_rules

    if not has_rules(settings):
        return []
    from gateway.wiring.list_reader import read_lists
    from gateway.wiring.shape_check import find_rule_warnings

    logging.disable()  # the warnings say it all
    try:
        return list(find_rule_warnings(settings, asyncio.run(read_lists(settings))))
    finally:
        logging.disable(logging.NOTSET)


def _as_object(
    settings: Settings,
    entries: list[ConfiguredBackend],
    effects: "list[EffectFinding]",
    warnings: list[str],
    errors: list[str],
) -> dict[str, object]:
    return {
        "source": str(settings.source) if settings.source else None,
        "url": f"{settings.server.public_url}/mcp",
        "backends": [asdict(entry) for entry in entries],
        "effects": {finding.namespace: finding.to_json() for finding in effects},
        "servers": {name: server.model_dump(mode="json") for name, server in settings.servers.items()},
        "warnings": warnings,
        "errors": errors,
    }


def _show(settings: Settings, entries: list[ConfiguredBackend]) -> None:
    console = open_output()
    console.print(f"Settings: {settings.source or 'defaults'}", markup=False, soft_wrap=True)
    table = Table("namespace", "kind", "target", "served", "trust", box=None, pad_edge=False)
    for entry in entries:
        served = "yes" if entry.served else "no"
        table.add_row(entry.namespace, entry.kind, escape(entry.target), served, entry.trust)
    console.print(table)
    for name, server in settings.servers.items():
        console.print(f"/mcp/{name}: {', '.join(server.backends)} ({server.names} names)", markup=False, soft_wrap=True)


def _show_effects(effects: "list[EffectFinding]") -> None:
    """Show the effects of the tools of each backend with `effects`."""
    console = open_output()
    for finding in effects:
        if not finding.tools:
            continue
        table = Table(f"tools of {finding.namespace}", "effect", "stated by", "approval", box=None, pad_edge=False)
        for each in finding.tools:
            origin = "effects" if each.stated else "the backend"
            table.add_row(escape(each.tool), str(each.effect), origin, "yes" if each.needs_approval else "no")
        console.print()
        console.print(table)
