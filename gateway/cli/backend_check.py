"""`gatehouse backends check`: connect to each backend, and say what is wrong and how to mend it."""

import asyncio
import json
import logging
import socket
import ssl
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from gateway.catalogue.snapshot import take
from gateway.cli.failure import BAD_SETTINGS, FAILED, CommandError
from gateway.cli.load_settings import make_importable, read_settings
from gateway.cli.progress import ProgressBar
from gateway.contract import Json, Manifest
from gateway.errors import Fault, ForeignError
from gateway.settings import BackendEntry, CommandBackend, ModuleBackend, Settings, UrlBackend
from gateway.upstream.health import LoadError
from gateway.upstream.stdio.orphan_reaper import OrphanReaper
from gateway.wiring.backends import judge, remote_backend

SECONDS: Final = 20.0
FETCHING_SECONDS: Final = 60.0
MAX_BYTES: Final = 64 * 1024 * 1024
_FETCHING: Final = ("npx", "uvx", "pipx", "bunx")
"""Programs that may first have to fetch what they run."""
_INFO: Final[Json] = {"name": "gatehouse", "version": "check"}


@dataclass(frozen=True, slots=True)
class BackendFinding:
    """What came of one backend."""

    namespace: str
    good: bool
    eras: tuple[str, ...] = ()
    tools: int = 0
    resources: int = 0
    prompts: int = 0
    quarantined: dict[str, str] = field(default_factory=dict[str, str])
    seconds: float = 0.0
    problem: str = ""
    mend: str = ""


class _Complaints(logging.Handler):
    """The last lines that servers wrote to their standard error, by namespace."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: dict[str, list[str]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        namespace, _, words = record.getMessage().partition("] ")
        if words:
            self.lines.setdefault(namespace.partition("[")[0], []).append(words[:300])


def check_backends(names: Sequence[str], config: Path | None, as_json: bool) -> None:
    settings = read_settings(config)
    make_importable(settings)
    if unknown := [name for name in names if name not in settings.backends]:
        raise CommandError(f"no backend is named {', '.join(unknown)}; known: {', '.join(settings.backends)}", code=2)
    chosen = {ns: entry for ns, entry in settings.backends.items() if (not names and entry.enabled) or ns in names}
    with ProgressBar("connecting"):
        findings = asyncio.run(probe(settings, chosen))
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        for finding in findings:
            _show(finding)
    if not all(finding.good for finding in findings):
        bad = sum(not finding.good for finding in findings)
        raise CommandError(f"{bad} of {len(findings)} cannot be served", code=FAILED if findings else BAD_SETTINGS)


async def probe(settings: Settings, chosen: Mapping[str, BackendEntry]) -> list[BackendFinding]:
    """Connect to each of them, all at once; modules are imported and their options checked."""
    complaints = _Complaints()
    logger = logging.getLogger("gatehouse.upstream")
    logger.addHandler(complaints)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    watchdog = OrphanReaper()
    try:
        return list(
            await asyncio.gather(*(_one(settings, ns, entry, watchdog, complaints) for ns, entry in chosen.items()))
        )
    finally:
        watchdog.close()


async def _one(
    settings: Settings, namespace: str, entry: BackendEntry, watchdog: OrphanReaper, complaints: _Complaints
) -> BackendFinding:
    try:
        judge(settings, namespace, entry)
        if isinstance(entry, ModuleBackend):
            return BackendFinding(namespace, True)
        began, seconds = time.monotonic(), _patience(entry)
        backend = remote_backend(namespace, entry, Manifest(), info=_INFO, max_bytes=MAX_BYTES, watchdog=watchdog)
    except LoadError as exc:
        part = f"backends.{namespace}"
        return _refused(namespace, entry, str(exc).removeprefix(f"{part}: ").removeprefix(f"{part}."))
    try:
        async with asyncio.timeout(seconds):
            snapshot = await asyncio.to_thread(take, backend, await backend.fetch_lists(None))
            eras = tuple(sorted(await backend.eras()))
    except (Fault, ForeignError, TimeoutError) as exc:
        said = complaints.lines.get(namespace, [])
        problem = str(exc) or f"no answer within {seconds:g} s"
        return BackendFinding(namespace, False, problem=problem, mend=mend(entry, exc, said))
    finally:
        await backend.close()
    offer = snapshot.offer
    return BackendFinding(
        namespace,
        True,
        eras,
        len(offer.tools),
        len(offer.resources) + len(offer.templates),
        len(offer.prompts),
        dict(snapshot.quarantined),
        round(time.monotonic() - began, 2),
    )


def _patience(entry: UrlBackend | CommandBackend) -> float:
    return FETCHING_SECONDS if isinstance(entry, CommandBackend) and entry.command in _FETCHING else SECONDS


def mend(entry: UrlBackend | CommandBackend, exc: BaseException, said: Sequence[str]) -> str:
    """What the operator can do about it."""
    if isinstance(entry, CommandBackend):
        if any("No such file" in line or "not found" in line for line in said[-3:]):
            return f"{entry.command} is not on the PATH: install it, or write its whole path in command:"
        if said:
            return f"it wrote: {said[-1]}"
        return f"run {entry.command} by hand with the same args and see what it says"
    causes = _causes(exc)
    words = str(exc)
    if any(isinstance(each, ConnectionRefusedError) for each in causes):
        return "nothing listens there: start the server, or mend the port in url:"
    if any(isinstance(each, socket.gaierror) for each in causes):
        return "its name is not known here: mend the host in url:"
    if any(isinstance(each, ssl.SSLError) for each in causes):
        return (
            "its certificate is not accepted here: use the name it was made for, or trust its authority on this machine"
        )
    if "credential" in words:
        return 'give it a credential: headers: {Authorization: "Bearer ${TOKEN}"}, or oauth:'
    if "private" in words:
        return "write allow_private: true if it may lie in a private network"
    if "HTTP 404" in words or "HTTP 405" in words:
        return "there is no MCP endpoint at that path: most have /mcp or /sse at the end of url:"
    return "see that it runs, speaks MCP at this url:, and is not behind a proxy that this machine cannot pass"


def _refused(namespace: str, entry: BackendEntry, problem: str) -> BackendFinding:
    if "files_shared" in problem:  # says itself how
        problem, _, mend = problem.partition(": ")
    else:
        mend = _mend_load(entry, problem)
    return BackendFinding(namespace, False, problem=problem, mend=mend)


def _mend_load(entry: BackendEntry, problem: str) -> str:
    if isinstance(entry, ModuleBackend):
        return "mend that option" if problem.startswith("options") else "install it, or mend module:"
    if isinstance(entry, UrlBackend) and not entry.allow_private:
        return "write allow_private: true if it may lie in a private network, or mend url:"
    return "mend the entry"


def _causes(exc: BaseException | None) -> list[BaseException]:
    found: list[BaseException] = []
    while exc is not None and len(found) < 10:
        found.append(exc)
        exc = exc.__cause__ or exc.__context__
    return found


def _show(finding: BackendFinding) -> None:
    if not finding.good:
        print(f"✗ {finding.namespace}: {finding.problem}\n    {finding.mend}")
        return
    if not finding.eras:
        print(f"✓ {finding.namespace}")
        return
    counts = f"{finding.tools} tools, {finding.resources} resources, {finding.prompts} prompts"
    print(f"✓ {finding.namespace}: {' and '.join(finding.eras)}, {counts}, {finding.seconds:g} s")
    for name, why in finding.quarantined.items():
        print(f"    not served: {name!r}: {why}")
