"""Sandbox for engine processes, which execute untrusted project code.

The engine may write to its project and to the tenant's engine home, and read the system and the engine itself.
Everything else is blocked, including the network; memory and file size are limited.
`sandbox_launcher.py` applies the restrictions in the engine's process.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final, Literal

from backends.godot.engine import sandbox_launcher
from gateway.errors import Fault, Kind

_LAUNCHER: Final = (sys.executable, "-I", "-S", sandbox_launcher.__file__)
_READABLE_SYSTEM: Final = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix", "/proc", "/sys"),
    # Not all of /etc: it contains the settings of other programs.
    *("/etc/alternatives", "/etc/fonts", "/etc/ld.so.cache", "/etc/locale.alias", "/etc/localtime", "/etc/ssl"),
    "/var/cache/fontconfig",
    *("/dev/random", "/dev/urandom"),
)
_LISTABLE: Final = ("/dev",)
"""The editor lists /dev to find joysticks and crashes if that is denied."""
_DEVICES: Final = ("/dev/null", "/dev/zero")
_BACKEND_FOLDER: Final = Path(__file__).parents[1]
_MEGABYTE: Final = 1 << 20
_MAX_FILE_BYTES: Final = 4096 * _MEGABYTE

Mode = Literal["auto", "require", "off"]


@dataclass(frozen=True, slots=True)
class Sandbox:
    """Restrictions for one engine process.

    Mode `auto` uses every isolation that this machine supports, `require` refuses to run unless all are supported,
    and `off` applies resource limits only.
    """

    mode: Mode = "off"
    memory_mb: int = 0
    network: bool = False
    """Whether the process may use the network."""
    readable_paths: tuple[Path, ...] = ()
    """Readable paths in addition to the system and the engine."""

    def with_network(self) -> "Sandbox":
        """Return the same sandbox with network access."""
        return replace(self, network=True)

    def check(self, probe: "Callable[[], dict[str, bool]] | None" = None) -> None:
        """Raise `Fault(UNSUPPORTED)` in mode `require` when this machine lacks an isolation."""
        if self.mode == "require" and not all((probe or supported_isolation)().values()):
            raise Fault(
                Kind.UNSUPPORTED,
                "This machine cannot sandbox the engine, and the operator requires a sandbox.",
                suggested_fix="Ask your operator for a kernel with Landlock and user namespaces, or to set"
                " backends.godot.options.sandbox to auto.",
            )

    def wrap_command(self, command: Sequence[str], project: Path, home: Path) -> list[str]:
        """Return the command line that runs `command` inside the sandbox."""
        config = {
            "list": _LISTABLE,
            "read": [
                *_READABLE_SYSTEM,
                str(_BACKEND_FOLDER),
                *_engine_paths(Path(command[0]), home),
                *map(str, self.readable_paths),
            ],
            "write": [str(project), str(home), *_DEVICES],
            "files": self.mode != "off",
            "network": self.mode != "off" and not self.network,
            "required": self.mode == "require",
            "memory": self.memory_mb * _MEGABYTE,
            "size": _MAX_FILE_BYTES,
            "parent": os.getpid(),
        }
        return [*_LAUNCHER, json.dumps(config), *command]


def _engine_paths(program: Path, home: Path) -> list[str]:
    """Return the program and its folder; not the folder when it contains a home directory."""
    folder = program.resolve().parent
    private_folders = (home, Path.home())
    neighbours = () if any(each.is_relative_to(folder) for each in private_folders) else (str(folder),)
    return [str(program.resolve()), *neighbours]


@cache
def supported_isolation() -> dict[str, bool]:
    """Return whether this machine supports isolation of `files` and of the `network`. Probed once, in a subprocess."""
    probe = subprocess.run(_LAUNCHER, stdin=subprocess.DEVNULL, capture_output=True, check=True)  # noqa: S603  # our own
    return json.loads(probe.stdout)
