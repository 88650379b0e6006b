"""A server under measure: started, pinned to a core, its CPU and memory read from /proc, stopped."""

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
    """Which core serves and which one drives; the same one when there is no choice."""

    server: int
    driver: int

    @classmethod
    def of_this_machine(cls) -> "Cores":
        allowed = sorted(os.sched_getaffinity(0))
        return cls(server=allowed[0], driver=allowed[min(1, len(allowed) - 1)])

    @property
    def shared(self) -> bool:
        return self.server == self.driver


class Server:
    """One process, with all that it starts; on that core only, if one is given."""

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
    def alive(self) -> bool:
        return self._process.poll() is None

    def last_words(self) -> str:
        """The last line it wrote, for the reader of a failure."""
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "(it wrote nothing)"

    def cpu_seconds(self) -> float:
        """User and system time so far of the whole process tree, children that ended included."""
        return sum(stat.cpu_ticks for stat in _tree(self.pid)) / _TICK

    def cpu_nanoseconds(self) -> int:
        """The same of its living threads alone, fine enough for a single call."""
        tasks = Path(f"/proc/{self.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)

    def rss_bytes(self) -> int:
        return sum(stat.rss_pages for stat in _tree(self.pid)) * _PAGE

    def stop(self) -> None:
        if not self.alive:
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
    # Pids may wrap around, so a child can stand before its parent: repeat until nothing is added.
    while more := {stat.pid for stat in every if stat.parent in wanted} - wanted:
        wanted |= more
    return [stat for stat in every if stat.pid in wanted]


def _read(entry: Path) -> _Stat | None:
    try:
        text = (entry / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command's name may hold blanks and brackets; every field after its last bracket is plain.
    fields = text.rpartition(")")[2].split()
    return _Stat(int(entry.name), int(fields[1]), sum(map(int, fields[11:15])), int(fields[21]))
