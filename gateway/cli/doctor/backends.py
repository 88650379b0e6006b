"""Checks of the policies, of names in the settings, and of the backends."""

from collections.abc import AsyncIterator, Iterator

from gateway.cli.backend_check import probe
from gateway.cli.check import find_warnings
from gateway.cli.doctor.finding import DoctorFinding, failed, passed, warning
from gateway.policy.source import SHIPPED, InvalidPolicies
from gateway.policy.table_tests import run_tables
from gateway.settings import ModuleBackend, Settings


def policies(settings: Settings) -> Iterator[DoctorFinding]:
    folder = settings.policies.dir or SHIPPED
    try:
        report = run_tables(folder)
    except InvalidPolicies as exc:
        for line in exc.lines:
            yield failed("policies", line, f"correct it in {folder}; a running gateway keeps its last valid policies")
        return
    for mistake in report.problems:
        yield warning("policies", mistake, "correct the policy or its table, then run gatehouse policy test")
    if not report.problems:
        yield passed("policies", f"{report.policies} policies, {report.rows} tests passed")


def unknown_names(settings: Settings) -> Iterator[DoctorFinding]:
    """Entries that refer to unknown or disabled backends."""
    for line in find_warnings(settings):
        part, _, message = line.partition(": ")
        if part != "server.public_url":  # checked with the ports
            disabled = message.endswith("not enabled")
            yield warning(
                part, message, "set enabled: true, or remove it" if disabled else "correct the name, or add the backend"
            )


async def backends(settings: Settings) -> AsyncIterator[DoctorFinding]:
    chosen = {namespace: entry for namespace, entry in settings.backends.items() if entry.enabled}
    for found in await probe(settings, chosen):
        part = f"backends.{found.namespace}"
        entry = chosen[found.namespace]
        if not found.ok:
            yield failed(part, found.problem, found.fix)
        elif isinstance(entry, ModuleBackend):
            yield passed(part, ":".join(entry.target))
        else:
            yield passed(part, f"{' and '.join(found.eras)}, {found.tools} tools")
        for name, reason in found.quarantined.items():
            yield warning(part, f"{name!r} is quarantined: {reason}", "correct the definition on the server")
