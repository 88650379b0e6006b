"""What is served, and by which rules: policies and backends."""

from collections.abc import AsyncIterator, Iterator

from gateway.cli.check import warnings
from gateway.cli.doctor.finding import Finding, bad, good, warning
from gateway.cli.probe import probe
from gateway.policy.source import SHIPPED, BadPolicies
from gateway.policy.tables import run_tables
from gateway.settings import Backend, ModuleBackend, Settings
from gateway.upstream.load import LoadError, imported


def policies(settings: Settings) -> Iterator[Finding]:
    folder = settings.policies.dir or SHIPPED
    try:
        report = run_tables(folder)
    except BadPolicies as exc:
        for line in exc.lines:
            yield bad("policies", line, f"mend that place in {folder}; a running gateway keeps its last good ones")
        return
    for mistake in report.mistakes:
        yield warning("policies", mistake, "mend the policy or its table; gatehouse policy test runs them")
    if not report.mistakes:
        yield good("policies", f"{report.policies} policies, {report.rows} tests of theirs pass")


def names(settings: Settings) -> Iterator[Finding]:
    """Entries that name what is not there."""
    for line in warnings(settings):
        part, _, words = line.partition(": ")
        if part != "server.public_url":  # told of with the ports
            off = words.endswith("not enabled")
            yield warning(
                part, words, "set enabled: true, or leave it out" if off else "mend the name, or add the backend"
            )


async def backends(settings: Settings) -> AsyncIterator[Finding]:
    remote: dict[str, Backend] = {}
    for namespace, entry in settings.backends.items():
        if not entry.enabled:
            continue
        if isinstance(entry, ModuleBackend):
            yield _module(settings, namespace, entry)
        else:
            remote[namespace] = entry
    for found in await probe(remote):
        part = f"backends.{found.namespace}"
        if not found.good:
            yield bad(part, found.problem, found.mend)
            continue
        yield good(part, f"{' and '.join(found.eras)}, {found.tools} tools")
        for name, why in found.quarantined.items():
            yield warning(part, f"{name!r} is not served: {why}", "have its server mend the definition")


def _module(settings: Settings, namespace: str, entry: ModuleBackend) -> Finding:
    part = f"backends.{namespace}"
    try:
        _, manifest, _ = imported(namespace, *entry.target, entry.options)
    except LoadError as exc:
        words = str(exc).removeprefix(f"{part}: ").removeprefix(f"{part}.")
        mend = (
            "mend that option"
            if words.startswith("options")
            else "install it, or mend module: package.module:attribute"
        )
        return bad(part, words, mend)
    if manifest.executor and settings.bus.url is not None and not settings.files_shared:
        return bad(
            part,
            "works on files, which every process must see",
            "make files_dir one shared volume and set files_shared: true, or serve it without bus.url",
        )
    return good(part, ":".join(entry.target))
