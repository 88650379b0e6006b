"""Program that applies resource limits, ties its life to its parent's, and then executes the server's command.

Usage: `python -I -S child_launcher.py MEMORY_MB CPU_SECONDS FILES PROCESSES PARENT -- COMMAND ARGUMENTS…`. A limit of 0
means no limit. Started by `ChildProcess`.
"""

import ctypes
import os
import resource
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(argv: list[str]) -> None:
    memory, cpu, files, processes, parent = (int(argument) for argument in argv[:5])
    command = argv[6:]
    if sys.platform == "linux":
        # The kernel kills the server when the gateway dies, for any reason.
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            sys.exit(1)  # the gateway died before the call above
    # Limits memory that is written, not address space: some runtimes reserve gigabytes when they start.
    _set_limit(resource.RLIMIT_DATA, memory * 1024 * 1024)
    _set_limit(resource.RLIMIT_CPU, cpu)
    _set_limit(resource.RLIMIT_NOFILE, files)
    _set_limit(resource.RLIMIT_NPROC, processes)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        os.execvp(command[0], command)  # noqa: S606  # the command comes from the operator's settings
    except OSError as exc:
        sys.exit(f"cannot run {command[0]}: {exc.strerror}")


def _set_limit(kind: int, limit: int) -> None:
    if limit:
        _, hard = resource.getrlimit(kind)
        effective = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(kind, (effective, effective))


if __name__ == "__main__":
    main(sys.argv[1:])
