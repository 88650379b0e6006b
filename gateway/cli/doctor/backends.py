"""What is served, and by which rules: policies and backends."""

from collections.abc import AsyncIterator, Iterator

from gateway.cli.backend_check import probe
from gateway.cli.check import warnings
from gateway.cli.doctor.finding import DoctorFinding, bad, good, warning
from gateway.policy.source import SHIPPED, InvalidPolicies
from gateway.policy.table_tests import run_tables
from gateway.settings import ModuleBackend, Settings


def policies(settings: Settings) -> Iterator[DoctorFinding]:
    folder = settings.policies.dir or SHIPPED
    try:
        report = run_tables(folder)
    except InvalidPolicies as exc:
        for line in exc.lines:
            yield bad("policies", line, f"mend that place in {folder}; a running gateway keeps its last good ones")
        return
    for mistake in report.mistakes:
        yield warning("policies", mistake, "mend the policy or its table; gatehouse policy test runs them")
    if not report.mistakes:
        yield good("policies", f"{report.policies} policies, {report.rows} tests of theirs pass")


def names(settings: Settings) -> Iterator[DoctorFinding]:
    """Entries that name what is not there."""
    for line in warnings(settings):
        part, _, words = line.partition(": ")
        if part != "server.public_url":  # told of with the ports
            off = words.endswith("not enabled")
            yield warning(
                part, words, "set enabled: true, or leave it out" if off else "mend the name, or add the backend"
            )


async def backends(settings: Settings) -> AsyncIterator[DoctorFinding]:
    chosen = {namespace: entry for namespace, entry in settings.backends.items() if entry.enabled}
    for found in await probe(settings, chosen):
        part = f"backends.{found.namespace}"
        entry = chosen[found.namespace]
        if not found.good:
            yield bad(part, found.problem, found.mend)
        elif isinstance(entry, ModuleBackend):
            yield good(part, ":".join(entry.target))
        else:
            yield good(part, f"{' and '.join(found.eras)}, {found.tools} tools")
        for name, why in found.quarantined.items():
            yield warning(part, f"{name!r} is not served: {why}", "have its server mend the definition")
