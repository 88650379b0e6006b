"""Run as a program: bound this process, tie its life to its parent's, and become the server.

`python -I -S wrap.py MEMORY_MB CPU_SECONDS FILES PROCESSES PARENT -- COMMAND ARGUMENTS…`; a limit of 0 is none.
"""

import ctypes
import os
import resource
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(words: list[str]) -> None:
    memory, cpu, files, processes, parent = (int(word) for word in words[:5])
    command = words[6:]
    if sys.platform == "linux":
        # Whatever kills the gateway, the server goes with it.
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            sys.exit(1)  # it was gone before we could ask
    # What is written to, not what is merely reserved: some runtimes reserve gigabytes at their start.
    _lower(resource.RLIMIT_DATA, memory * 1024 * 1024)
    _lower(resource.RLIMIT_CPU, cpu)
    _lower(resource.RLIMIT_NOFILE, files)
    _lower(resource.RLIMIT_NPROC, processes)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        os.execvp(command[0], command)  # noqa: S606  # this is what it is for; the command is the operator's
    except OSError as exc:
        sys.exit(f"cannot run {command[0]}: {exc.strerror}")


def _lower(what: int, limit: int) -> None:
    if limit:
        _, hard = resource.getrlimit(what)
        most = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(what, (most, most))


if __name__ == "__main__":
    main(sys.argv[1:])
