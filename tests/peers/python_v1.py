"""The Python SDK of the handshake era, which has the tasks of 2025-11-25, in an environment of its own."""

import fcntl
import subprocess
import sys
import venv
from pathlib import Path
from typing import Final

from tests.prerequisites import skip_or_fail

SDK: Final = ("mcp", "1.30.0")
_FOLDER: Final = Path(sys.prefix) / "peers" / "mcp1"
PYTHON: Final = _FOLDER / "bin" / "python"


def install_python_sdk() -> Path:
    """Install the SDK if needed and return the interpreter that has it. Skips the test if that fails."""
    _FOLDER.parent.mkdir(parents=True, exist_ok=True)
    with (_FOLDER.parent / "lock-python").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _installed() == SDK[1]:
            return PYTHON
        venv.create(_FOLDER, with_pip=True, clear=True)
        command = [str(PYTHON), "-m", "pip", "install", "--quiet", f"{SDK[0]}=={SDK[1]}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if _installed() != SDK[1]:
        skip_or_fail(f"pip could not install {SDK[0]} {SDK[1]}: {done.stderr.strip()[-500:]}")
    return PYTHON


def _installed() -> str | None:
    if not PYTHON.exists():
        return None
    program = f"from importlib.metadata import version; print(version({SDK[0]!r}))"
    return subprocess.run([str(PYTHON), "-c", program], capture_output=True, text=True).stdout.strip()
