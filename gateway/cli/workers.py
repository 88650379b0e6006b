"""Several workers on one machine: this process holds the socket, starts them, starts them again, and passes signals on.

Each worker is the command itself with an inherited socket; it serves as a process alone would, or a pod.
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

_STEADY: Final = 10.0
"""A worker that has run so long did not fail because of what it was started with."""
_BACK_OFF: Final = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class InheritedSockets:
    """What a worker is given: the sockets' numbers, a pipe that ends with its parent, and whether it greets."""

    main: int
    ops: int | None
    parent: int
    loud: bool

    def __str__(self) -> str:
        return f"{self.main},{'' if self.ops is None else self.ops},{self.parent},{int(self.loud)}"

    @classmethod
    def parse(cls, text: str) -> "InheritedSockets":
        main, ops, parent, loud = text.split(",")
        return cls(int(main), int(ops) if ops else None, int(parent), loud == "1")


class WorkerSupervisor:
    """`run` returns the exit code when all have ended."""

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
        loop.add_signal_handler(signal.SIGHUP, self._pass_on, signal.SIGHUP)
        theirs, ours = os.pipe()
        try:
            await asyncio.gather(*(self._keep(number, theirs) for number in range(self._count)))
        finally:
            os.close(theirs)
            os.close(ours)
        return self._code

    def _stop(self, number: signal.Signals) -> None:
        self._stopping.set()
        self._pass_on(number)

    def _pass_on(self, number: signal.Signals) -> None:
        for process in self._running.values():
            with suppress(ProcessLookupError):
                process.send_signal(number)

    async def _keep(self, number: int, pipe: int) -> None:
        failures, first = 0, True
        while not self._stopping.is_set():
            began = time.monotonic()
            code = await self._one(number, pipe, loud=number == 0 and first)
            if self._stopping.is_set():
                return
            failures = 0 if time.monotonic() - began > _STEADY else failures + 1
            if first and code == BAD_SETTINGS:
                # What one cannot be started with, none can.
                self._code = code
                self._stop(signal.SIGTERM)
                return
            first = False
            log.warning("worker %d ended with %d; it is started again", number, code)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), _BACK_OFF[min(failures, len(_BACK_OFF) - 1)])

    async def _one(self, number: int, pipe: int, *, loud: bool) -> int:
        ops = None if self._ops is None else self._ops.fileno()
        given = InheritedSockets(self._main.fileno(), ops, pipe, loud)
        process = await asyncio.create_subprocess_exec(
            *self._command,
            "--inherit",
            str(given),
            pass_fds=[fd for fd in (given.main, given.ops, given.parent) if fd is not None],
            # A terminal's Ctrl-C is for this process to pass on, once.
            process_group=0,
        )
        self._running[number] = process
        try:
            if self._stopping.is_set():
                process.send_signal(signal.SIGTERM)
            return await process.wait()
        finally:
            del self._running[number]


def command() -> list[str]:
    """This command as it was given, to be run again."""
    return [sys.executable, "-P", "-m", "gateway", *sys.argv[1:]]


def leave_with_parent(pipe: int) -> None:
    """Stop this worker, in order, when the process that started it is gone."""
    loop = asyncio.get_running_loop()

    def gone() -> None:
        loop.remove_reader(pipe)
        os.kill(os.getpid(), signal.SIGTERM)

    loop.add_reader(pipe, gone)
