"""Runs all checks in the order in which a start would fail, and prints the findings."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from rich.text import Text

from gateway.cli.doctor import backends, machine, network, storage
from gateway.cli.doctor.finding import DoctorFinding, failed, passed
from gateway.cli.failure import BAD_SETTINGS, FAILED, CommandError
from gateway.cli.load_settings import add_module_paths
from gateway.cli.output import open_output
from gateway.cli.progress import ProgressBar
from gateway.settings import Settings, SettingsError, load

_SYMBOLS: Final = {"good": ("✓", "green"), "warning": ("!", "yellow"), "bad": ("✗", "red")}
_CHECK_COUNT: Final = 9


def doctor(config: Path | None, as_json: bool) -> None:
    findings: list[DoctorFinding] = []
    try:
        settings = load(config)
    except SettingsError as exc:
        findings += (failed("settings", line, "correct it; docs/settings.md lists all settings") for line in exc.lines)
    else:
        add_module_paths(settings)
        findings.append(passed("settings", str(settings.source or "defaults")))
        findings += asyncio.run(_run_checks(settings))
    if as_json:
        print(json.dumps([finding.to_json() for finding in findings], indent=2))
    else:
        _show(findings)
    problems = sum(finding.state == "bad" for finding in findings)
    if problems:
        settings_failed = findings[0].part == "settings" and findings[0].state == "bad"
        count = "1 problem" if problems == 1 else f"{problems} problems"
        raise CommandError(f"{count} found", code=BAD_SETTINGS if settings_failed else FAILED)


async def _run_checks(settings: Settings) -> list[DoctorFinding]:
    with ProgressBar("checking", _CHECK_COUNT) as progress:
        found: list[DoctorFinding] = []
        async for name, finding in _checks(settings):
            if finding is None:
                progress.step(name)
            else:
                found.append(finding)
        return found


async def _checks(settings: Settings) -> AsyncIterator[tuple[str, DoctorFinding | None]]:
    """Yield the name of each check before it runs, then its findings."""
    yield "ports", None
    for finding in machine.ports(settings):
        yield "", finding
    yield "folders", None
    for finding in (*machine.folders(settings), machine.open_files(settings)):
        yield "", finding
    yield "secrets", None
    for finding in machine.secrets(settings):
        yield "", finding
    for name, findings in (
        ("database", storage.database(settings)),
        ("bus", storage.bus(settings)),
        ("identity providers", network.issuers(settings)),
        ("collector", network.collector(settings)),
    ):
        yield name, None
        async for finding in findings:
            yield "", finding
    yield "policies", None
    for finding in (
        *await asyncio.to_thread(lambda: list(backends.policies(settings))),
        *backends.unknown_names(settings),
    ):
        yield "", finding
    yield "backends", None
    async for finding in backends.backends(settings):
        yield "", finding


def _show(findings: list[DoctorFinding]) -> None:
    console = open_output(highlight=False)
    for finding in findings:
        symbol, colour = _SYMBOLS[finding.state]
        line = Text.assemble((symbol, colour), f" {finding.part}: ", finding.message)
        console.print(line, soft_wrap=True)
        if finding.fix:
            console.print(Text.assemble("    ", (finding.fix, "bold")), soft_wrap=True)
