"""`gatehouse backends check`: connects to each backend and reports problems with a suggested fix."""

import asyncio
import json
import logging
import os
import socket
import ssl
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from gateway.catalogue.snapshot import take_snapshot
from gateway.cli.failure import BAD_SETTINGS, FAILED, CommandError
from gateway.cli.load_settings import add_module_paths, read_settings
from gateway.cli.output import count
from gateway.cli.progress import ProgressBar
from gateway.contract import Json, Manifest
from gateway.errors import Fault, ForeignError
from gateway.settings import BackendEntry, CommandBackend, ModuleBackend, OpenApiBackend, Settings
from gateway.upstream.health import LoadError
from gateway.upstream.openapi.backend import ApiBackend
from gateway.upstream.stdio.orphan_reaper import OrphanReaper
from gateway.wiring.backends import RemoteEntry, check_backend, remote_backend

CONNECT_SECONDS: Final = 20.0
FETCH_SECONDS: Final = 60.0
MAX_BYTES: Final = 64 * 1024 * 1024
_FETCHING_COMMANDS: Final = ("npx", "uvx", "pipx", "bunx")
"""Programs that may have to download a package before they run it."""
INFO: Final[Json] = {"name": "gatehouse", "version": "check"}


@dataclass(frozen=True, slots=True)
class BackendFinding:
    """Result of the check of one backend."""

    namespace: str
    ok: bool
    eras: tuple[str, ...] = ()
    tools: int = 0
    resources: int = 0
    prompts: int = 0
    quarantined: dict[str, str] = field(default_factory=dict[str, str])
    seconds: float = 0.0
    problem: str = ""
    fix: str = ""

    def to_json(self) -> Json:
        return {
            "namespace": self.namespace,
            "good": self.ok,
            "eras": self.eras,
            "tools": self.tools,
            "resources": self.resources,
            "prompts": self.prompts,
            "quarantined": self.quarantined,
            "seconds": self.seconds,
            "problem": self.problem,
            "mend": self.fix,
        }


class _StderrCollector(logging.Handler):
    """Collects the lines that child processes write to standard error, by namespace."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: dict[str, list[str]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        namespace, _, line = record.getMessage().partition("] ")
        if line:
            self.lines.setdefault(namespace.partition("[")[0], []).append(line[:300])


def check_backends(names: Sequence[str], config: Path | None, as_json: bool) -> None:
    settings = read_settings(config)
    add_module_paths(settings)
    if unknown := [name for name in names if name not in settings.backends]:
        raise CommandError(f"unknown backend {', '.join(unknown)} (known: {', '.join(settings.backends)})", code=2)
    chosen = {ns: entry for ns, entry in settings.backends.items() if (not names and entry.enabled) or ns in names}
    with ProgressBar("connecting"):
        findings = asyncio.run(probe(settings, chosen))
    if as_json:
        print(json.dumps([finding.to_json() for finding in findings], indent=2))
    else:
        for finding in findings:
            _show(finding)
    if not all(finding.ok for finding in findings):
        failures = sum(not finding.ok for finding in findings)
        raise CommandError(f"{failures} of {len(findings)} backends failed", code=FAILED if findings else BAD_SETTINGS)


async def probe(settings: Settings, chosen: Mapping[str, BackendEntry]) -> list[BackendFinding]:
    """Check all chosen backends concurrently: connect to servers, import modules and validate their options."""
    stderr = _StderrCollector()
    logger = logging.getLogger("gatehouse.upstream")
    logger.addHandler(stderr)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    orphan_reaper = OrphanReaper()
    try:
        return list(
            await asyncio.gather(
                *(_check_one(settings, ns, entry, orphan_reaper, stderr) for ns, entry in chosen.items())
            )
        )
    finally:
        orphan_reaper.close()


async def _check_one(
    settings: Settings, namespace: str, entry: BackendEntry, orphan_reaper: OrphanReaper, stderr: _StderrCollector
) -> BackendFinding:
    try:
        check_backend(settings, namespace, entry)
        if isinstance(entry, ModuleBackend):
            return BackendFinding(namespace, True)
        started, seconds = time.monotonic(), connect_timeout(entry)
        backend = remote_backend(
            namespace, entry, Manifest(), info=INFO, max_bytes=MAX_BYTES, orphan_reaper=orphan_reaper
        )
    except LoadError as exc:
        part = f"backends.{namespace}"
        return _load_failure(namespace, entry, str(exc).removeprefix(f"{part}: ").removeprefix(f"{part}."))
    try:
        async with asyncio.timeout(seconds):
            snapshot = await asyncio.to_thread(take_snapshot, backend, await backend.fetch_lists(None))
            problems: Mapping[str, str] = {}
            if isinstance(backend, ApiBackend):
                eras, problems = ("openapi",), backend.problems
            else:
                eras = tuple(sorted(await backend.eras()))
    except (Fault, ForeignError, TimeoutError) as exc:
        problem = str(exc) or f"no response within {seconds:g} s"
        fix = suggest_fix(entry, exc, stderr.lines.get(namespace, []))
        return BackendFinding(namespace, False, problem=problem, fix=fix)
    finally:
        await backend.close()
    offer = snapshot.lists
    return BackendFinding(
        namespace,
        True,
        eras,
        len(offer.tools),
        len(offer.resources) + len(offer.templates),
        len(offer.prompts),
        {**problems, **snapshot.quarantined},
        round(time.monotonic() - started, 2),
    )


def connect_timeout(entry: RemoteEntry) -> float:
    """Seconds to wait for the lists of a server."""
    return (
        FETCH_SECONDS if isinstance(entry, CommandBackend) and entry.command in _FETCHING_COMMANDS else CONNECT_SECONDS
    )


def suggest_fix(entry: RemoteEntry, exc: BaseException, stderr_lines: Sequence[str]) -> str:
    """Suggest what the operator can do about a failed connection."""
    if isinstance(entry, CommandBackend):
        if any("No such file" in line or "not found" in line for line in stderr_lines[-3:]):
            if os.sep in entry.command:
                return f"{entry.command} does not exist or cannot be run: correct the path in command:"
            return f"{entry.command} is not on the PATH: install it, or give its full path in command:"
        if stderr_lines:
            return f"last line on standard error: {stderr_lines[-1]}"
        return f"run {entry.command} in a terminal with the same args to see its output"
    causes = _causes(exc)
    message = str(exc)
    if isinstance(entry, OpenApiBackend) and "OpenAPI document" in message:
        return "correct openapi:, include: or exclude:, or the document itself"
    if any(isinstance(each, ConnectionRefusedError) for each in causes):
        return "connection refused: start the server, or correct the port in url:"
    if any(isinstance(each, socket.gaierror) for each in causes):
        return "the host name cannot be resolved: correct the host in url:"
    if any(isinstance(each, ssl.SSLError) for each in causes):
        return "the certificate is not trusted: use the host name it was issued for, or install its CA on this machine"
    if "credential" in message:
        return 'set a credential: headers: {Authorization: "Bearer ${TOKEN}"}, or oauth:'
    if "private" in message:
        return "set allow_private: true if a private address is intended"
    if "HTTP 404" in message or "HTTP 405" in message:
        return "there is no MCP endpoint at this path: correct url:, which usually ends in /mcp or /sse"
    return "check that the server runs, speaks MCP at this url:, and is reachable from this machine"


def _load_failure(namespace: str, entry: BackendEntry, problem: str) -> BackendFinding:
    if "files_shared" in problem:  # the message contains its own fix
        problem, _, fix = problem.partition(": ")
    else:
        fix = _suggest_load_fix(entry, problem)
    return BackendFinding(namespace, False, problem=problem, fix=fix)


def _suggest_load_fix(entry: BackendEntry, problem: str) -> str:
    if isinstance(entry, ModuleBackend):
        return "correct this option" if problem.startswith("options") else "install the module, or correct module:"
    if not isinstance(entry, CommandBackend) and not entry.allow_private:
        return "set allow_private: true if a private address is intended, or correct url:"
    return "correct the entry"


def _causes(exc: BaseException | None) -> list[BaseException]:
    found: list[BaseException] = []
    while exc is not None and len(found) < 10:
        found.append(exc)
        exc = exc.__cause__ or exc.__context__
    return found


def _show(finding: BackendFinding) -> None:
    if not finding.ok:
        print(f"✗ {finding.namespace}: {finding.problem}\n    {finding.fix}")
        return
    if not finding.eras:
        print(f"✓ {finding.namespace}")
        return
    counts = ", ".join(
        (count(finding.tools, "tool"), count(finding.resources, "resource"), count(finding.prompts, "prompt"))
    )
    print(f"✓ {finding.namespace}: {' and '.join(finding.eras)}, {counts}, {finding.seconds:g} s")
    for name, reason in finding.quarantined.items():
        print(f"    quarantined: {name!r}: {reason}")
