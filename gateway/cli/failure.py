"""Errors of commands: one line on standard error and a distinct exit code. Used by every command."""

import errno
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from gateway.errors import Fault, Kind

if TYPE_CHECKING:
    from gateway.settings import Settings

FAILED: Final = 1
BAD_SETTINGS: Final = 2
UNAUTHENTICATED: Final = 3
UNREACHABLE: Final = 4
CALL_FAILED: Final = 5


class CommandError(Exception):
    """Ends the command with `lines` and `code`."""

    def __init__(self, *lines: str, code: int = FAILED) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines
        self.code = code


def print_stderr(line: str) -> None:
    print(f"gatehouse: {' '.join(line.split())}", file=sys.stderr)


@contextmanager
def explain_system_errors(settings: "Settings") -> Generator[None]:
    """Convert errors of the operating system and of the storage into a `CommandError` that says what to do."""
    try:
        yield
    except BrokenPipeError:
        raise  # standard output was closed; unrelated to the settings
    except OSError as exc:
        raise CommandError(_os_error_message(exc, settings)) from exc
    except Fault as fault:
        if fault.kind is not Kind.UNAVAILABLE:
            raise
        # The fault's message is safe for clients; the operator also needs the location of the data.
        raise CommandError(_unavailable_message(fault, settings)) from fault


def _unavailable_message(fault: Fault, settings: "Settings") -> str:
    from gateway.state.unreachable import Unreachable

    if isinstance(fault, Unreachable):
        # The location excludes user and password, which are part of the same setting.
        where = f"{fault.setting}: {fault.address}" if fault.address else fault.setting
        return f"{where} cannot be used ({fault.reason}); run `gatehouse doctor` to find the cause"
    elsewhere = settings.database.url is not None and "database" in fault.message
    return f"{'database.url' if elsewhere else settings.data_dir.absolute()}: {fault.message}"


def _os_error_message(exc: OSError, settings: "Settings") -> str:
    if exc.filename is None:
        return f"{exc.strerror or exc}; run `gatehouse doctor` to find the cause"
    folder = settings.data_dir
    return f"cannot use {os.fspath(exc.filename)}: {exc.strerror}; make {folder} writable, or change data_dir"


@contextmanager
def explain_bind_errors(host: str, port: int, option: str) -> Generator[None]:
    """Convert a failed bind into a `CommandError` that says what to do; `option` sets the port."""
    try:
        yield
    except OSError as exc:
        raise CommandError(_bind_error_message(exc, f"{host}:{port}", option)) from exc


def _bind_error_message(exc: OSError, address: str, option: str) -> str:
    match exc.errno:
        case errno.EADDRINUSE:
            return f"{address} is in use; choose another with {option}"
        case errno.EACCES:
            return f"no permission to listen on {address}; choose a port above 1023 with {option}"
        case errno.EADDRNOTAVAIL:
            return f"{address} is not an address of this machine; choose another with --host"
        case _:
            return f"cannot listen on {address}: {exc.strerror or exc}"
