"""`gatehouse check`: say what would be served, without serving it."""

import importlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gateway.cli.configured import make_importable, read_settings
from gateway.cli.failure import BAD_SETTINGS, Failure, say
from gateway.settings import Backend, CommandBackend, ModuleBackend, Settings, UrlBackend


@dataclass(frozen=True, slots=True)
class Entry:
    """One backend as the operator wrote it."""

    namespace: str
    kind: str
    target: str
    enabled: bool


def check(config: Path | None, as_json: bool) -> None:
    settings = read_settings(config)
    make_importable(settings)
    entries = [entry_of(namespace, backend) for namespace, backend in settings.backends.items()]
    said = list(warnings(settings))
    errors = list(module_problems(settings))
    if as_json:
        print(json.dumps(_as_object(settings, entries, said, errors), indent=2))
    else:
        _show(settings, entries)
        for warning in said:
            say(f"warning: {warning}")
    if errors:
        raise Failure(*errors, code=BAD_SETTINGS)


def entry_of(namespace: str, backend: Backend) -> Entry:
    match backend:
        case ModuleBackend():
            return Entry(namespace, "module", ":".join(backend.target), backend.enabled)
        case UrlBackend():
            return Entry(namespace, "url", backend.url, backend.enabled)
        case CommandBackend():
            # Arguments may hold secrets; the program's name does not.
            return Entry(namespace, "command", backend.command, backend.enabled)


def warnings(settings: Settings) -> Iterator[str]:
    """A line for each entry that will not do what was meant."""
    if not settings.backends:
        yield "backends: nothing is served"
    if settings.server.host in ("0.0.0.0", "::") and "public_url" not in settings.server.model_fields_set:  # noqa: S104
        yield f"server.public_url: not set, and clients cannot reach {settings.server.public_url}"
    for name, server in settings.servers.items():
        for namespace in server.backends:
            if not settings.backends[namespace].enabled:
                yield f"servers.{name}: {namespace} is not enabled"
    for name, tenant in settings.tenants.items():
        for namespace in tenant.backends:
            if namespace != "*" and namespace not in settings.backends:
                yield f"tenants.{name}: no backend is named {namespace}"


def module_problems(settings: Settings) -> Iterator[str]:
    """A line for each module that cannot be imported or lacks what it should have."""
    for namespace, backend in settings.backends.items():
        if isinstance(backend, ModuleBackend) and backend.enabled and (reason := import_problem(*backend.target)):
            yield f"backends.{namespace}: {backend.target[0]} {reason}"


def import_problem(module: str, attribute: str) -> str | None:
    try:
        found = importlib.import_module(module)
    except Exception as exc:  # a module may raise anything while it is imported
        return f"cannot be imported: {type(exc).__name__}: {exc}"
    return None if hasattr(found, attribute) else f"has no {attribute}"


def _as_object(settings: Settings, entries: list[Entry], said: list[str], errors: list[str]) -> dict[str, object]:
    return {
        "source": str(settings.source) if settings.source else None,
        "url": f"{settings.server.public_url}/mcp",
        "backends": [asdict(entry) for entry in entries],
        "servers": {name: server.model_dump(mode="json") for name, server in settings.servers.items()},
        "warnings": said,
        "errors": errors,
    }


def _show(settings: Settings, entries: list[Entry]) -> None:
    console = Console()
    console.print(f"Settings: {settings.source or 'the defaults'}", markup=False, soft_wrap=True)
    table = Table("namespace", "kind", "target", "served", box=None, pad_edge=False)
    for entry in entries:
        table.add_row(entry.namespace, entry.kind, escape(entry.target), "yes" if entry.enabled else "no")
    console.print(table)
    for name, server in settings.servers.items():
        console.print(f"/mcp/{name}: {', '.join(server.backends)} ({server.names} names)", markup=False, soft_wrap=True)
