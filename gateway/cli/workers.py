"""Supervisor of several workers on one machine: holds the sockets, starts and restarts workers, forwards signals.

Each worker runs the same command with inherited sockets, and serves like a single process.
"""

import asyncio
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from gateway.cli.failure import BAD_SETTINGS

log = logging.getLogger("gatehouse.workers")

_STABLE_SECONDS: Final = 10.0
"""Seconds after which a worker counts as started; a later exit resets the back-off."""
_BACK_OFF: Final = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class InheritedSockets:
    """File descriptors that a worker inherits: the sockets, and a pipe that closes when its parent exits."""

    main: int
    ops: int | None
    parent: int
    prints_startup: bool

    def __str__(self) -> str:
        return f"{self.main},{'' if self.ops is None else self.ops},{self.parent},{int(self.prints_startup)}"

    @classmethod
    def parse(cls, text: str) -> "InheritedSockets":
        main, ops, parent, prints_startup = text.split(",")
        return cls(int(main), int(ops) if ops else None, int(parent), prints_startup == "1")


class WorkerSupervisor:
    """Runs the workers until a signal stops them; `run` returns the exit code."""

    def __init__(self, command: Sequence[str], count: int, main: socket.socket, ops: socket.socket | None) -> None:
        self._command = command
        self._count = count
        self._main = main
        self._ops = ops
        self._running: dict[int, asyncio.subprocess.Process] = {}
        self._stopping = asyncio.Event()
        self._code = 0

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop, number)
        loop.add_signal_handler(signal.SIGHUP, self._forward_signal, signal.SIGHUP)
        # Workers inherit the read end; it reports end of file when this process exits.
        read_end, write_end = os.pipe()
        try:
            await asyncio.gather(*(self._supervise(number, read_end) for number in range(self._count)))
        finally:
            os.close(read_end)
            os.close(write_end)
        return self._code

    def _stop(self, number: signal.Signals) -> None:
        self._stopping.set()
        self._forward_signal(number)

    def _forward_signal(self, number: signal.Signals) -> None:
        for process in self._running.values():
            with suppress(ProcessLookupError):
                process.send_signal(number)

    async def _supervise(self, number: int, pipe: int) -> None:
        failures, first = 0, True
        while not self._stopping.is_set():
            started = time.monotonic()
            code = await self._run_worker(number, pipe, prints_startup=number == 0 and first)
            if self._stopping.is_set():
                return
            failures = 0 if time.monotonic() - started > _STABLE_SECONDS else failures + 1
            if first and code == BAD_SETTINGS:
                # All workers have the same settings, so none can start.
                self._code = code
                self._stop(signal.SIGTERM)
                return
            first = False
            log.warning("worker %d exited with code %d; restarting", number, code)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), _BACK_OFF[min(failures, len(_BACK_OFF) - 1)])

    async def _run_worker(self, number: int, pipe: int, *, prints_startup: bool) -> int:
        ops = None if self._ops is None else self._ops.fileno()
        inherited = InheritedSockets(self._main.fileno(), ops, pipe, prints_startup)
        process = await asyncio.create_subprocess_exec(
            *self._command,
            "--inherit",
            str(inherited),
            pass_fds=[fd for fd in (inherited.main, inherited.ops, inherited.parent) if fd is not None],
            # Own process group: Ctrl-C reaches only this process, which forwards it once.
            process_group=0,
        )
        self._running[number] = process
        try:
            if self._stopping.is_set():
                process.send_signal(signal.SIGTERM)
            return await process.wait()
        finally:
            del self._running[number]


def worker_command() -> list[str]:
    """The current command line, for starting a worker."""
    return [sys.executable, "-P", "-m", "gateway", *sys.argv[1:]]


def stop_with_parent(pipe: int) -> None:
    """Stop this worker gracefully when its parent process exits."""
    loop = asyncio.get_running_loop()

    def stop() -> None:
        loop.remove_reader(pipe)
        os.kill(os.getpid(), signal.SIGTERM)

    loop.add_reader(pipe, stop)
