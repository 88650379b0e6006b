"""`gatehouse check`: say what would be served, without serving it."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gateway.cli.failure import BAD_SETTINGS, CommandError, say
from gateway.cli.load_settings import EVERYWHERE, make_importable, read_settings
from gateway.settings import BackendEntry, CommandBackend, ModuleBackend, Settings, UrlBackend
from gateway.upstream.health import LoadError
from gateway.wiring.policy import judge_policies


@dataclass(frozen=True, slots=True)
class ConfiguredBackend:
    """One entry of `backends:` as the operator wrote it, for `check` and `backends list`."""

    namespace: str
    kind: str
    target: str
    served: bool


def entry_of(namespace: str, backend: BackendEntry) -> ConfiguredBackend:
    """Summarise one entry; `served` is what the settings alone say."""
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
    make_importable(settings)
    refused = list(_refusals(settings))
    bad = {refusal.at[1] for refusal in refused if refusal.at[0] == "backends"}
    written = [entry_of(namespace, backend) for namespace, backend in settings.backends.items()]
    entries = [replace(entry, served=entry.served and entry.namespace not in bad) for entry in written]
    said = list(warnings(settings))
    errors = [settings.placed(refusal.at, str(refusal)) for refusal in refused]
    if as_json:
        print(json.dumps(_as_object(settings, entries, said, errors), indent=2))
    else:
        _show(settings, entries)
        for warning in said:
            say(f"warning: {warning}")
    if errors:
        raise CommandError(*errors, code=BAD_SETTINGS)


def _refusals(settings: Settings) -> Iterator[LoadError]:
    """What `serve` would refuse."""
    if settings.backends:
        from gateway.wiring.backends import backend_refusals

        yield from backend_refusals(settings)
    try:
        judge_policies(settings)
    except LoadError as exc:
        yield exc


def warnings(settings: Settings) -> Iterator[str]:
    """A line for each entry that will not do what was meant."""
    if not settings.backends:
        yield "backends: nothing is served"
    if settings.server.host in EVERYWHERE and "public_url" not in settings.server.model_fields_set:
        yield f"server.public_url: not set, and clients cannot reach {settings.server.public_url}"
    for name, server in settings.servers.items():
        for namespace in server.backends:
            if not settings.backends[namespace].enabled:
                yield f"servers.{name}: {namespace} is not enabled"
    for name, tenant in settings.tenants.items():
        for namespace in tenant.backends:
            if namespace != "*" and namespace not in settings.backends:
                yield f"tenants.{name}: no backend is named {namespace}"


def _as_object(
    settings: Settings, entries: list[ConfiguredBackend], said: list[str], errors: list[str]
) -> dict[str, object]:
    return {
        "source": str(settings.source) if settings.source else None,
        "url": f"{settings.server.public_url}/mcp",
        "backends": [asdict(entry) for entry in entries],
        "servers": {name: server.model_dump(mode="json") for name, server in settings.servers.items()},
        "warnings": said,
        "errors": errors,
    }


def _show(settings: Settings, entries: list[ConfiguredBackend]) -> None:
    console = Console()
    console.print(f"Settings: {settings.source or 'the defaults'}", markup=False, soft_wrap=True)
    table = Table("namespace", "kind", "target", "served", box=None, pad_edge=False)
    for entry in entries:
        table.add_row(entry.namespace, entry.kind, escape(entry.target), "yes" if entry.served else "no")
    console.print(table)
    for name, server in settings.servers.items():
        console.print(f"/mcp/{name}: {', '.join(server.backends)} ({server.names} names)", markup=False, soft_wrap=True)
