"""Restricts its own process and then executes the engine in it. It uses only the standard library.

Usage: `python -I -S sandbox_launcher.py CONFIG PROGRAM ARGUMENT…`. CONFIG is a JSON object:

- `list`, `read`, `write`: paths with that access; all other paths are blocked;
- `files`, `network`: which isolation to apply; `required`: exit if one of them fails;
- `memory`, `size`: limits in bytes; `parent`: process id whose death kills this process.

Without arguments it prints which isolation this machine supports.
"""

import ctypes
import json
import os
import resource
import signal
import sys
from contextlib import suppress
from typing import Any, Final

EXIT_UNSUPPORTED: Final = 97
"""Exit code when a required isolation is not available."""

_NEWUSER, _NEWNET = 0x10000000, 0x40000000
_PDEATHSIG, _NO_NEW_PRIVILEGES = 1, 38
# Landlock: https://docs.kernel.org/userspace-api/landlock.html
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_GET_VERSION, _BENEATH = 1, 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_TRUNCATE = 1 << 14
_FILE_RIGHTS: Final = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE
_READING: Final = _EXECUTE | _READ_FILE | _READ_DIR
# Landlock ABI version -> number of file rights. TCP rules exist since 4, signal and abstract socket scopes since 6.
_RIGHTS_OF_VERSION: Final = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
_MAX_RIGHTS: Final = 16
_TCP, _TCP_VERSION = 0b11, 4
_SCOPES, _SCOPES_VERSION = 0b11, 6
_MAX_OPEN_FILES: Final = 4096
_MAX_PROCESSES: Final = 512

_libc = ctypes.CDLL(None, use_errno=True)


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def landlock_version() -> int:
    """Return the kernel's Landlock ABI version, or 0 without Landlock."""
    return max(_libc.syscall(_CREATE_RULESET, None, 0, _GET_VERSION), 0)


def apply_limits(config: dict[str, Any]) -> None:
    """Set resource limits, lower the priority, and make the kernel kill this process when the gateway dies."""
    _libc.prctl(_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != config["parent"]:
        sys.exit(EXIT_UNSUPPORTED)
    os.nice(5)
    for kind, maximum in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, _MAX_OPEN_FILES),
        (resource.RLIMIT_FSIZE, config["size"]),
        (resource.RLIMIT_AS, config["memory"]),
    ):
        if maximum or kind == resource.RLIMIT_CORE:
            _set_limit(kind, maximum)


def _set_limit(kind: int, maximum: int) -> None:
    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        maximum = min(maximum, hard)
    resource.setrlimit(kind, (maximum, maximum))


def isolate_network() -> bool:
    """Enter a new, empty network namespace and a new user namespace. Returns false if the kernel denies it."""
    user, group = os.getuid(), os.getgid()
    if _libc.unshare(_NEWUSER | _NEWNET) != 0:
        return False
    with suppress(OSError):  # Without a map the user is displayed as `nobody`, with the same rights.
        for file, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{file}", "w") as opened:
                opened.write(text)
    # Set after unshare: the kernel counts processes per user namespace, so other processes do not count.
    _set_limit(resource.RLIMIT_NPROC, _MAX_PROCESSES)
    return True


def restrict_files(config: dict[str, Any]) -> bool:
    """Block access to all paths that the config does not list, and TCP ports if the network is isolated."""
    abi_version = landlock_version()
    if not abi_version:
        return False
    all_rights = (1 << _RIGHTS_OF_VERSION.get(abi_version, _MAX_RIGHTS)) - 1
    net = _TCP if config["network"] and abi_version >= _TCP_VERSION else 0
    rules = _Ruleset(all_rights, net, _SCOPES if abi_version >= _SCOPES_VERSION else 0)
    ruleset = _libc.syscall(_CREATE_RULESET, ctypes.byref(rules), ctypes.c_size_t(_ruleset_size(abi_version)), 0)
    if ruleset < 0:
        return False
    for access, rights in (("list", _READ_DIR), ("read", _READING), ("write", all_rights)):
        for path in config[access]:
            _allow(ruleset, path, rights)
    _libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    return _libc.syscall(_RESTRICT_SELF, ruleset, 0) == 0


def _ruleset_size(abi_version: int) -> int:
    """Return the struct size for this ABI version; an older kernel rejects unknown fields."""
    return 24 if abi_version >= _SCOPES_VERSION else 16 if abi_version >= _TCP_VERSION else 8


def _allow(ruleset: int, path: str, rights: int) -> None:
    with suppress(OSError):  # A missing path needs no rule.
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
        if not os.path.isdir(path):
            rights &= _FILE_RIGHTS
        rule = _PathBeneath(rights, handle)
        _libc.syscall(_ADD_RULE, ruleset, _BENEATH, ctypes.byref(rule), 0)
        os.close(handle)


def probe() -> dict[str, bool]:
    """Return which kinds of isolation this machine supports."""
    return {"files": landlock_version() > 0, "network": isolate_network()}


def main(config: dict[str, Any], command: list[str]) -> None:
    apply_limits(config)
    network_ok = not config["network"] or isolate_network()
    files_ok = not config["files"] or restrict_files(config)
    if config["required"] and not (network_ok and files_ok):
        sys.exit(EXIT_UNSUPPORTED)
    os.execve(command[0], command, dict(os.environ))  # noqa: S606  # executing the given command is the purpose


if __name__ == "__main__":
    if len(sys.argv) == 1:
        print(json.dumps(probe()))
    else:
        main(json.loads(sys.argv[1]), sys.argv[2:])
