"""What the engine may touch: a project's code runs in it, and nobody has read that code.

The project and the tenant's own engine folder are open to it, the system and the engine itself can be read, everything
else is closed; there is no network, and memory and files have a bound. `sandbox_launcher.py` does it, in the engine's process.
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

_PYTHON: Final = (sys.executable, "-I", "-S", sandbox_launcher.__file__)
_SYSTEM: Final = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix", "/proc", "/sys"),
    # Not all of /etc: people keep settings of other programs there.
    *("/etc/alternatives", "/etc/fonts", "/etc/ld.so.cache", "/etc/locale.alias", "/etc/localtime", "/etc/ssl"),
    "/var/cache/fontconfig",
    *("/dev/random", "/dev/urandom"),
)
_LISTED: Final = ("/dev",)
"""An editor looks here for joysticks, and crashes where it may not look."""
_DEVICES: Final = ("/dev/null", "/dev/zero")
_OURS: Final = Path(__file__).parents[1]
_MEGABYTE: Final = 1 << 20
_LARGEST: Final = 4096 * _MEGABYTE

Mode = Literal["auto", "require", "off"]


@dataclass(frozen=True, slots=True)
class Walls:
    """`auto`: those that this machine has; `require`: all of them, or nothing runs; `off`: only the limits."""

    mode: Mode = "off"
    memory_mb: int = 0
    network: bool = False
    """Whether it may use the network."""
    reads: tuple[Path, ...] = ()
    """What it may read beside the system and itself."""

    def with_network(self) -> "Walls":
        return replace(self, network=True)

    def check(self, have: "Callable[[], dict[str, bool]] | None" = None) -> None:
        """Raises `Fault(UNSUPPORTED)` when a wall that must be there cannot be."""
        if self.mode == "require" and not all((have or found)().values()):
            raise Fault(
                Kind.UNSUPPORTED,
                "This machine cannot wall in the engine, and without walls it may not run.",
                suggested_fix="Ask your operator for a kernel with Landlock and user namespaces, or to set"
                " backends.godot.options.sandbox to auto.",
            )

    def around(self, command: Sequence[str], project: Path, home: Path) -> list[str]:
        """The command that runs this one inside."""
        walls = {
            "list": _LISTED,
            "read": [*_SYSTEM, str(_OURS), *_of_engine(Path(command[0]), home), *map(str, self.reads)],
            "write": [str(project), str(home), *_DEVICES],
            "files": self.mode != "off",
            "network": self.mode != "off" and not self.network,
            "must": self.mode == "require",
            "memory": self.memory_mb * _MEGABYTE,
            "size": _LARGEST,
            "parent": os.getpid(),
        }
        return [*_PYTHON, json.dumps(walls), *command]


def _of_engine(program: Path, home: Path) -> list[str]:
    """The program, and what lies beside it, unless that is where people keep everything else."""
    folder = program.resolve().parent
    theirs = (home, Path.home())
    beside = () if any(each.is_relative_to(folder) for each in theirs) else (str(folder),)
    return [str(program.resolve()), *beside]


@cache
def found() -> dict[str, bool]:
    """Which walls this machine has: of `files`, and of the `network`. Asked once, in a process of its own."""
    asked = subprocess.run(_PYTHON, stdin=subprocess.DEVNULL, capture_output=True, check=True)  # noqa: S603  # our own
    return json.loads(asked.stdout)
