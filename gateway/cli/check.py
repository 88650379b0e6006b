"""`gatehouse check`: validates the settings and shows what they serve, without starting the gateway."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from gateway.cli.failure import BAD_SETTINGS, CommandError, print_stderr
from gateway.cli.load_settings import WILDCARD_HOSTS, add_module_paths, read_settings
from gateway.cli.output import open_output
from gateway.settings import BackendEntry, CommandBackend, ModuleBackend, Settings, UrlBackend
from gateway.upstream.health import LoadError
from gateway.wiring.policy import check_policies


@dataclass(frozen=True, slots=True)
class ConfiguredBackend:
    """One entry of `backends:` as the operator wrote it, for `check` and `backends list`."""

    namespace: str
    kind: str
    target: str
    served: bool


def describe_entry(namespace: str, backend: BackendEntry) -> ConfiguredBackend:
    """Summarise one entry; `served` reflects the settings only."""
    match backend:
        case ModuleBackend():
            return ConfiguredBackend(namespace, "module", ":".join(backend.target), backend.enabled)
        case UrlBackend():
            return ConfiguredBackend(namespace, "url", backend.url, backend.enabled)
        case CommandBackend():
            # Arguments may hold secrets; the program's name does not.
            return ConfiguredBackend(namespace, "command", backend.command, backend.enabled)


def check(config: Path | None, as_json: bool) -> None:
    settings = read_settings(config)
    add_module_paths(settings)
    load_errors = list(_load_errors(settings))
    invalid = {error.setting_path[1] for error in load_errors if error.setting_path[0] == "backends"}
    described = [describe_entry(namespace, backend) for namespace, backend in settings.backends.items()]
    entries = [replace(entry, served=entry.served and entry.namespace not in invalid) for entry in described]
    warnings = [*find_warnings(settings), *_rule_warnings(settings)]
    errors = [settings.with_origin(error.setting_path, str(error)) for error in load_errors]
    if as_json:
        print(json.dumps(_as_object(settings, entries, warnings, errors), indent=2))
    else:
        _show(settings, entries)
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
    from gateway.wiring.shape_check import find_rule_warnings, has_rules

    if not has_rules(settings):
        return []
    from gateway.wiring.list_reader import read_lists

    return list(find_rule_warnings(settings, asyncio.run(read_lists(settings))))


def _as_object(
    settings: Settings, entries: list[ConfiguredBackend], warnings: list[str], errors: list[str]
) -> dict[str, object]:
    return {
        "source": str(settings.source) if settings.source else None,
        "url": f"{settings.server.public_url}/mcp",
        "backends": [asdict(entry) for entry in entries],
        "servers": {name: server.model_dump(mode="json") for name, server in settings.servers.items()},
        "warnings": warnings,
        "errors": errors,
    }


def _show(settings: Settings, entries: list[ConfiguredBackend]) -> None:
    console = open_output()
    console.print(f"Settings: {settings.source or 'defaults'}", markup=False, soft_wrap=True)
    table = Table("namespace", "kind", "target", "served", box=None, pad_edge=False)
    for entry in entries:
        table.add_row(entry.namespace, entry.kind, escape(entry.target), "yes" if entry.served else "no")
    console.print(table)
    for name, server in settings.servers.items():
        console.print(f"/mcp/{name}: {', '.join(server.backends)} ({server.names} names)", markup=False, soft_wrap=True)
