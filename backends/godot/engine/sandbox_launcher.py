"""Runs before the engine, in its process: puts walls around it, then becomes it. Needs only the standard library.

`python -I -S sandbox_launcher.py WALLS PROGRAM ARGUMENT…`, where WALLS is a JSON object: `list`, `read` and `write` are lists of
paths (what none names is closed to the engine), `network` and `files` say which walls are wanted, `must` that none may
be missing, `memory` and `size` are limits in bytes, `parent` is whom it may not outlive. Without a program it prints
which walls this machine has.
"""

import ctypes
import json
import os
import resource
import signal
import sys
from contextlib import suppress
from typing import Any, Final

MISSING: Final = 97
"""The exit code when a wall is missing that must be there."""

_NEWUSER, _NEWNET = 0x10000000, 0x40000000
_PDEATHSIG, _NO_NEW_PRIVILEGES = 1, 38
# Landlock: https://docs.kernel.org/userspace-api/landlock.html
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION, _BENEATH = 1, 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_TRUNCATE = 1 << 14
_FILE_RIGHTS: Final = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE
_READING: Final = _EXECUTE | _READ_FILE | _READ_DIR
# Version -> how many rights of files it knows; TCP since 4, signals and abstract sockets since 6.
_RIGHTS_OF_VERSION: Final = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
_MOST_RIGHTS: Final = 16
_TCP, _TCP_VERSION = 0b11, 4
_SCOPES, _SCOPES_VERSION = 0b11, 6
_FILES: Final = 4096
_PROCESSES: Final = 512

_libc = ctypes.CDLL(None, use_errno=True)


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def version() -> int:
    """Of the kernel's Landlock; 0 where there is none."""
    return max(_libc.syscall(_CREATE_RULESET, None, 0, _VERSION), 0)


def limit(walls: dict[str, Any]) -> None:
    """A process that is no danger to the machine, and that ends when the gateway does."""
    _libc.prctl(_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != walls["parent"]:
        sys.exit(MISSING)
    os.nice(5)
    for kind, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, _FILES),
        (resource.RLIMIT_FSIZE, walls["size"]),
        (resource.RLIMIT_AS, walls["memory"]),
    ):
        if most or kind == resource.RLIMIT_CORE:
            _at_most(kind, most)


def _at_most(kind: int, most: int) -> None:
    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    resource.setrlimit(kind, (most, most))


def leave_network() -> bool:
    """A network of its own with nothing in it, and a user of its own with no rights outside."""
    user, group = os.getuid(), os.getgid()
    if _libc.unshare(_NEWUSER | _NEWNET) != 0:
        return False
    with suppress(OSError):  # without a map it goes by the name of nobody, with the same rights
        for file, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{file}", "w") as opened:
                opened.write(text)
    # Only now: they are counted for each such user, so this counts nobody else's.
    _at_most(resource.RLIMIT_NPROC, _PROCESSES)
    return True


def leave_files(walls: dict[str, Any]) -> bool:
    """Everything that is not named is closed; without a network so are the ports."""
    known = version()
    if not known:
        return False
    every = (1 << _RIGHTS_OF_VERSION.get(known, _MOST_RIGHTS)) - 1
    net = _TCP if walls["network"] and known >= _TCP_VERSION else 0
    rules = _Ruleset(every, net, _SCOPES if known >= _SCOPES_VERSION else 0)
    ruleset = _libc.syscall(_CREATE_RULESET, ctypes.byref(rules), ctypes.c_size_t(_size(known)), 0)
    if ruleset < 0:
        return False
    for what, rights in (("list", _READ_DIR), ("read", _READING), ("write", every)):
        for path in walls[what]:
            _allow(ruleset, path, rights)
    _libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    return _libc.syscall(_RESTRICT_SELF, ruleset, 0) == 0


def _size(known: int) -> int:
    """An older kernel does not take fields that it does not know."""
    return 24 if known >= _SCOPES_VERSION else 16 if known >= _TCP_VERSION else 8


def _allow(ruleset: int, path: str, rights: int) -> None:
    with suppress(OSError):  # what is not there needs no rule
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
        if not os.path.isdir(path):
            rights &= _FILE_RIGHTS
        rule = _Beneath(rights, handle)
        _libc.syscall(_ADD_RULE, ruleset, _BENEATH, ctypes.byref(rule), 0)
        os.close(handle)


def probe() -> dict[str, bool]:
    """Which walls this machine has."""
    return {"files": version() > 0, "network": leave_network()}


def main(walls: dict[str, Any], command: list[str]) -> None:
    limit(walls)
    alone = not walls["network"] or leave_network()
    closed = not walls["files"] or leave_files(walls)
    if walls["must"] and not (alone and closed):
        sys.exit(MISSING)
    os.execve(command[0], command, dict(os.environ))  # noqa: S606  # that is what it is for


if __name__ == "__main__":
    if len(sys.argv) == 1:
        print(json.dumps(probe()))
    else:
        main(json.loads(sys.argv[1]), sys.argv[2:])
