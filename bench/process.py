"""Starts a measured server, pins it to a core, and reads its CPU time and memory from /proc."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Cores:
    """The cores of the server and of the load driver; the same one on a single-core machine."""

    server: int
    driver: int

    @classmethod
    def detect(cls) -> "Cores":
        allowed = sorted(os.sched_getaffinity(0))
        return cls(server=allowed[0], driver=allowed[min(1, len(allowed) - 1)])

    @property
    def is_shared(self) -> bool:
        return self.server == self.driver


class Server:
    """A server process and its children, pinned to `core` unless it is None."""

    def __init__(self, argv: Sequence[str], *, core: int | None, log: Path, env: Mapping[str, str]) -> None:
        self._log = log
        self.started = time.perf_counter()
        with log.open("wb") as out:
            self._process = subprocess.Popen(argv, stdout=out, stderr=out, env=dict(env), start_new_session=True)
        if core is not None:
            os.sched_setaffinity(self._process.pid, {core})

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def last_log_line(self) -> str:
        """Return the last line of its log, for error messages."""
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "(log is empty)"

    def cpu_seconds(self) -> float:
        """Return the user and system time of the process tree, including finished children."""
        return sum(stat.cpu_ticks for stat in _tree(self.pid)) / _TICK

    def cpu_nanoseconds(self) -> int:
        """Return the CPU time of its live threads only; precise enough for a single call."""
        tasks = Path(f"/proc/{self.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)

    def rss_bytes(self) -> int:
        return sum(stat.rss_pages for stat in _tree(self.pid)) * _PAGE

    def stop(self) -> None:
        if not self.is_alive:
            return
        self._process.terminate()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@dataclass(frozen=True, slots=True)
class _Stat:
    pid: int
    parent: int
    cpu_ticks: int
    rss_pages: int


def _tree(root: int) -> list[_Stat]:
    every = [stat for entry in Path("/proc").iterdir() if entry.name.isdigit() and (stat := _read(entry))]
    wanted = {root}
    # Process ids wrap around, so a child may be listed before its parent: repeat until nothing is added.
    while more := {stat.pid for stat in every if stat.parent in wanted} - wanted:
        wanted |= more
    return [stat for stat in every if stat.pid in wanted]


def _read(entry: Path) -> _Stat | None:
    try:
        text = (entry / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command name may contain blanks and parentheses; parse the fields after the last parenthesis.
    fields = text.rpartition(")")[2].split()
    return _Stat(int(entry.name), int(fields[1]), sum(map(int, fields[11:15])), int(fields[21]))
