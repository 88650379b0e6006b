"""Looks at everything, in the order in which it would fail, and says what was found."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import asdict
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

from gateway.cli.doctor import backends, machine, network, storage
from gateway.cli.doctor.finding import DoctorFinding, bad, good
from gateway.cli.failure import BAD_SETTINGS, FAILED, CommandError
from gateway.cli.load_settings import make_importable
from gateway.cli.progress import ProgressBar
from gateway.settings import Settings, SettingsError, load

_SIGNS: Final = {"good": ("✓", "green"), "warning": ("!", "yellow"), "bad": ("✗", "red")}
_PARTS: Final = 9


def doctor(config: Path | None, as_json: bool) -> None:
    findings: list[DoctorFinding] = []
    try:
        settings = load(config)
    except SettingsError as exc:
        findings += (
            bad("settings", line, "mend that place; docs/settings.md lists every setting") for line in exc.lines
        )
    else:
        make_importable(settings)
        findings.append(good("settings", str(settings.source or "the defaults")))
        findings += asyncio.run(_gathered(settings))
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        _show(findings)
    wrong = sum(finding.state == "bad" for finding in findings)
    if wrong:
        unread = findings[0].part == "settings" and findings[0].state == "bad"
        raise CommandError(f"{wrong} to mend", code=BAD_SETTINGS if unread else FAILED)


async def _gathered(settings: Settings) -> list[DoctorFinding]:
    with ProgressBar("looking", _PARTS) as waiting:
        found: list[DoctorFinding] = []
        async for name, finding in _looks(settings):
            if finding is None:
                waiting.step(name)
            else:
                found.append(finding)
        return found


async def _looks(settings: Settings) -> AsyncIterator[tuple[str, DoctorFinding | None]]:
    """Each part is named before it is looked at."""
    yield "ports", None
    for finding in machine.ports(settings):
        yield "", finding
    yield "folders", None
    for finding in (*machine.folders(settings), machine.open_files(settings)):
        yield "", finding
    yield "secrets", None
    for finding in machine.secrets(settings):
        yield "", finding
    for name, looked in (
        ("database", storage.database(settings)),
        ("bus", storage.bus(settings)),
        ("identity providers", network.issuers(settings)),
        ("collector", network.collector(settings)),
    ):
        yield name, None
        async for finding in looked:
            yield "", finding
    yield "policies", None
    for finding in (*await asyncio.to_thread(lambda: list(backends.policies(settings))), *backends.names(settings)):
        yield "", finding
    yield "backends", None
    async for finding in backends.backends(settings):
        yield "", finding


def _show(findings: list[DoctorFinding]) -> None:
    console = Console(highlight=False)
    for finding in findings:
        sign, colour = _SIGNS[finding.state]
        line = Text.assemble((sign, colour), f" {finding.part}: ", finding.words)
        console.print(line, soft_wrap=True)
        if finding.mend:
            console.print(Text.assemble("    ", (finding.mend, "bold")), soft_wrap=True)
