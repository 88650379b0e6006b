"""Test peers from PyPI, each installed once in a virtual environment of its own: they pin other SDK versions."""

import fcntl
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.prerequisites import skip_or_fail

FETCH: Final = ("mcp-server-fetch", "2026.10.24")
GIT: Final = ("mcp-server-git", "2026.10.19")
TIME: Final = ("mcp-server-time", "2026.10.19")

_PEERS: Final = Path(sys.prefix) / "peers"

Package = tuple[str, str]


def command(package: Package) -> list[str]:
    """Return the command that runs the package's server. Skips the test if the package cannot be installed."""
    name, version = package
    folder = _PEERS / name
    program, done = folder / "bin" / name, folder / f"installed-{version}"
    _PEERS.mkdir(exist_ok=True)
    with (_PEERS / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            problem = _install(folder, f"{name}=={version}")
            if problem or not program.exists():
                skip_or_fail(f"pip could not install {name}=={version}: {problem[-500:]}")
            done.touch()
    return [str(program)]


def _install(folder: Path, requirement: str) -> str:
    for arguments in (
        (sys.executable, "-m", "venv", "--clear", str(folder)),
        (str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", requirement),
    ):
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=300)
        if done.returncode:
            return (done.stdout + done.stderr).strip()
    return ""
