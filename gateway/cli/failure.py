"""How a command fails: one line on standard error and an exit code that a script can tell apart."""

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


def say(line: str) -> None:
    print(f"gatehouse: {' '.join(line.split())}", file=sys.stderr)


@contextmanager
def system_errors_explained(settings: "Settings") -> Generator[None]:
    """Turn what the operating system refuses into what to do about it."""
    try:
        yield
    except BrokenPipeError:
        raise  # of the standard output: nothing that settings could mend
    except OSError as exc:
        raise CommandError(_explanation(exc, settings)) from exc
    except Fault as fault:
        if fault.kind is not Kind.UNAVAILABLE:
            raise
        # What a client may not know and the operator must: where the data are.
        raise CommandError(_away(fault, settings)) from fault


def _away(fault: Fault, settings: "Settings") -> str:
    from gateway.state.unreachable import Unreachable

    if isinstance(fault, Unreachable):
        # Without user and password, which stand in the same setting.
        where = f"{fault.setting}: {fault.where}" if fault.where else fault.setting
        return f"{where} cannot be used ({fault.why}); `gatehouse doctor` says what is wrong"
    elsewhere = settings.database.url is not None and "database" in fault.message
    return f"{'database.url' if elsewhere else settings.data_dir.absolute()}: {fault.message}"


def _explanation(exc: OSError, settings: "Settings") -> str:
    if exc.filename is None:
        return f"{exc.strerror or exc}; `gatehouse doctor` says what is wrong"
    folder = settings.data_dir
    return f"cannot use {os.fspath(exc.filename)}: {exc.strerror}; make {folder} yours and writable, or set data_dir"


@contextmanager
def listening_explained(host: str, port: int, mend: str) -> Generator[None]:
    """Turn what the system refuses to somebody who would listen there into what to do; `mend` names the port's."""
    try:
        yield
    except OSError as exc:
        raise CommandError(_refused_socket(exc, f"{host}:{port}", mend)) from exc


def _refused_socket(exc: OSError, address: str, mend: str) -> str:
    match exc.errno:
        case errno.EADDRINUSE:
            return f"{address} is in use; choose another with {mend}"
        case errno.EACCES:
            return f"{address} is not yours to open; choose a port above 1023 with {mend}"
        case errno.EADDRNOTAVAIL:
            return f"{address} is not an address of this machine; choose another with --host"
        case _:
            return f"cannot listen on {address}: {exc.strerror or exc}"
